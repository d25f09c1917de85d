"""A fake GitHub: real HTTP on loopback, real git repositories, GitHub's semantics, faults on demand.

    with FakeGitHub() as github:
        repo = github.repository("octo/models", {"train.py": b"..."})
        repo.permission("maintainer", "write")
        pull = repo.pull(files={"train.py": b"..."}, title="Faster", author="dev")      # or head="mallory:fix" (a fork)

`github.url` is the REST base (`http://127.0.0.1:PORT/api/v3`; GraphQL is at `/api/graphql`), `github.html` the root of
pages and of `git clone`. `github.app` has `id`, `slug`, `login`, `private_key` (PEM), `webhook_secret`. The App is
installed on the owner of every repository unless `installation=False`.

Tokens: `github.token(repo, {"pull_requests": "read"})` is a GITHUB_TOKEN of Actions, `github.user_token("maintainer")`
a personal one, `github.signed_in_token("maintainer")` one of a person who signed in with the App,
`github.installation_token(repo.installation)` one of the App without its JWT. `token_seconds=` of
`FakeGitHub` says how long installation tokens live. `github.manifest()` gives a `code` of the App manifest flow; for a
browser, `/settings/apps/new`, the page of the installation and `/login/oauth/authorize` are there, too
(`fake_github.web`), and the pages of a repository and of its pull requests, to open, answer and merge them (`fake_github.conversation`); `github.person` sits before it, and `github.app.callback_urls` is where a sign-in may lead back to.
`github.install(login, repos)`, `uninstall`, `suspend`, `add_repository` and `remove_repository` change installations; `github.organization(login)` makes the account an organisation.

Repo: `commit(branch, files, message) -> sha`, `pull(...) -> Pull`, `fork(login)`, `permission(login, role)`,
`rename(full_name)` (301 from then on), `file(path, ref) -> bytes | None`, `installation`, `sarifs`, `check_runs`.
Pull: `number`, `head_sha`, `push(files) -> sha`, `force_push(files) -> sha`, `close(merged=False)`, `reopen()`, `ready()`, `edit(title)`,
`label(name)`, `comment(login, body) -> id`, `edit_comment(login, id, body)`, `review_comment(login, path, line, body)
-> id`, `reply(login, comment_id, body) -> id`, `react(login, comment_id, content)`, `resolve(login, thread)`,
`accept(comment_id, login) -> sha` (applies the suggestion; SuggestionRefusedError where GitHub's page refuses),
and what is there: `reviews`, `review_comments`, `issue_comments`, `threads`, `check_runs`.

As on GitHub: a bot is `ptopt[bot]` in REST and `ptopt` as an Actor of GraphQL; resolving a thread takes contents:write
beside pull_requests:write, and GITHUB_TOKEN never may; a reply is a review of its own without a body; a comment whose
lines changed has no line any more; applying a suggestion resolves its thread.

Faults: `github.faults.add("POST", r"/reviews$", "502-after", times=1, after=0, seconds=60)`; names in `faults.FAULTS`:
500, 502, 503 (before the write; `-after`: the write happened), drop, drop-after (the connection), primary-limit,
secondary-limit (403 with Retry-After), secondary-limit-429, abuse (422), expired-token (401), slow, slow-after.
`github.limits` holds GitHub's limits (files, patches, diffs); lower them to reach them.

`github.requests` is the log: method, path, query, headers, body, json, route, status (0: dropped), fault.

Webhooks go to `github.webhook_url` once it is set: what people do (above), what requests do (in the background;
`github.drain()` waits), and `github.deliver(event, action, payload, pull=…)`; `payload` alone, also as bytes, is any
recorded one. Nothing is ever sent for a reaction. `github.deliveries` and the API of the App remember all of them;
`github.redeliver(delivery)` keeps the GUID.

Checks: callables `check(request, response) -> violations or None` in `github.checks` (those of `default_checks` at
first) see every request and its answer; what they find is in `github.violations`, and the `with` block fails for it.
`request.route` is GitHub's own path template ("/graphql" for GraphQL, None for git and unknown paths);
`response.fault` names the fault that made the answer. A failure of the fake GitHub itself is a violation, too.
"""

from __future__ import annotations

from fake_github.fake import Check, FakeGitHub, default_checks
from fake_github.faults import FAULTS
from fake_github.http import Request, Response
from fake_github.pulls import Pull
from fake_github.repos import Repo
from fake_github.suggestions import SuggestionRefusedError, suggestion_of
from fake_github.webhooks import Delivery

__all__ = [
    "FAULTS",
    "Check",
    "Delivery",
    "FakeGitHub",
    "Pull",
    "Repo",
    "Request",
    "Response",
    "SuggestionRefusedError",
    "default_checks",
    "suggestion_of",
]
