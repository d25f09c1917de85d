"""The pages of a repository and of its pull requests, on which people open one, answer comments and merge.

Whoever looks is `FakeGitHub.person`; `/login` makes it somebody else who has a role in a repository.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote

from fake_github import html
from fake_github.http import Answer, ApiError, Request, not_found
from fake_github.suggestions import SuggestionRefusedError

if TYPE_CHECKING:
    from fake_github.comments import IssueComment
    from fake_github.fake import FakeGitHub
    from fake_github.pulls import Pull
    from fake_github.repos import Repo
    from fake_github.reviews import Review

_REPO = re.compile(r"/([^/]+/[^/]+)(/pulls)?")
_PULL = re.compile(r"/([^/]+/[^/]+)/pull/([0-9]+)(?:/([a-z]+))?")
_SIGNS = {"+1": "👍", "-1": "👎"}


def handle(github: FakeGitHub, request: Request, form: dict[str, str]) -> Answer | None:
    """The answer to a request for one of these pages; None for any other path."""
    posts = request.method == "POST"
    if request.path == "/":
        return _home(github)
    if request.path == "/login" and posts:
        return _act_as(github, form)
    if match := _PULL.fullmatch(request.path):
        pull = _repo(github, match[1]).pulls.get(int(match[2]))
        if pull is None:
            raise not_found()
        if not match[3]:
            return _pull(pull)
        if match[3] not in _ACTIONS or not posts:
            raise not_found()
        return _act(pull, match[3], form)
    if (match := _REPO.fullmatch(request.path)) and match[1].lower() in github.repos:
        repo = _repo(github, match[1])
        return _open(repo, form) if match[2] and posts else _repository(repo)
    return None


def _repo(github: FakeGitHub, full_name: str) -> Repo:
    """Raises 404 where there is none that the person may read."""
    repo = github.find_repo(full_name)
    if repo.role(github.person) == "none":
        raise not_found()
    return repo


def _act_as(github: FakeGitHub, form: dict[str, str]) -> Answer:
    person, back = form.get("person", ""), form.get("back", "")
    if not any(person in repo.collaborators for repo in github.repos.values()):
        raise not_found()
    github.person = person
    return _to(back if re.fullmatch(r"/[\w.-][\w./-]*", back) else "/")


def _home(github: FakeGitHub) -> Answer:
    mine = [repo for repo in github.repos.values() if repo.role(github.person) != "none"]
    people = sorted({login for repo in github.repos.values() for login in repo.collaborators})
    return html.page("home.html", github=github, repos=mine, people=people, here="/")


def _repository(repo: Repo) -> Answer:
    proposed = {pull.head_ref for pull in repo.pulls.values()} | {repo.default_branch}
    heads = {ref.removeprefix("refs/heads/"): sha for ref, sha in repo.git.refs.items() if "/heads/" in ref}
    branches = {name: _title(repo, sha) for name, sha in heads.items() if name not in proposed}
    return _page("repository.html", repo, f"/{repo.full_name}", branches=branches)


def _title(repo: Repo, sha: str) -> str:
    return repo.git.read_commit(sha).message.partition("\n")[0]


def _open(repo: Repo, form: dict[str, str]) -> Answer:
    branch = form.get("branch", "")
    sha = repo.git.refs.get(f"refs/heads/{branch}")
    if sha is None:
        raise not_found()
    pull = repo.pull(branch, title=_title(repo, sha), author=repo.github.person, deliver=False)
    repo.github.webhooks.background(pull.delivery("opened", repo.github.person))
    return _to(f"/{repo.full_name}/pull/{pull.number}")


def _pull(pull: Pull, status: int = 200, problem: str = "") -> Answer:
    reviews = [
        review
        for review in pull.reviews
        if review.body or any(not each.in_reply_to for each in review.comments)
    ]
    both: list[Review | IssueComment] = [*reviews, *pull.issue_comments]
    items = sorted(both, key=lambda each: each.id)
    here = f"/{pull.repo.full_name}/pull/{pull.number}"
    return _page("pull.html", pull.repo, here, status, pull=pull, items=items, signs=_SIGNS, problem=problem)


def _page(template: str, repo: Repo, here: str, status: int = 200, **values: object) -> Answer:
    github = repo.github
    people = [login for login, role in repo.collaborators.items() if role != "none"]
    return html.page(template, status, github=github, repo=repo, people=people, here=here, **values)


def _act(pull: Pull, action: str, form: dict[str, str]) -> Answer:
    number = form.get("comment", "")
    comment = int(number) if number.isdecimal() else 0
    try:
        at = _ACTIONS[action](pull, pull.github.person, comment, form)
    except SuggestionRefusedError as error:
        return _pull(pull, 422, str(error))
    except ApiError as error:
        return _pull(pull, error.answer.status, "That cannot be posted.")
    except StopIteration:
        raise not_found() from None
    return _to(f"/{pull.repo.full_name}/pull/{pull.number}{at}")


def _comment(pull: Pull, person: str, comment: int, form: dict[str, str]) -> str:
    return f"#issuecomment-{pull.comment(person, form.get('body', ''))}"


def _reply(pull: Pull, person: str, comment: int, form: dict[str, str]) -> str:
    return f"#discussion_r{pull.reply(person, comment, form.get('body', ''))}"


def _react(pull: Pull, person: str, comment: int, form: dict[str, str]) -> str:
    """A second click takes the reaction back."""
    content = form.get("content", "")
    reactions = pull.reactions_to(comment)
    mine = next((r for r in reactions if (r.account.login, r.content) == (person, content)), None)
    if mine is None:
        pull.react(person, comment, content)
    else:
        reactions.remove(mine)
    return f"#discussion_r{comment}"


def _resolve(pull: Pull, person: str, comment: int, form: dict[str, str]) -> str:
    thread = pull.thread_of(comment)
    pull.resolve(person, thread, not thread.resolved)
    return f"#discussion_r{comment}"


def _accept(pull: Pull, person: str, comment: int, form: dict[str, str]) -> str:
    pull.accept(comment, person)
    return f"#discussion_r{comment}"


def _merge(pull: Pull, person: str, comment: int, form: dict[str, str]) -> str:
    if pull.open:
        pull.close(merged=True, login=person)
    return ""


def _close(pull: Pull, person: str, comment: int, form: dict[str, str]) -> str:
    if pull.open:
        pull.close(login=person)
    return ""


def _reopen(pull: Pull, person: str, comment: int, form: dict[str, str]) -> str:
    if not pull.open and not pull.merged:
        pull.reopen(person)
    return ""


_ACTIONS: dict[str, Callable[[Pull, str, int, dict[str, str]], str]] = {
    "comment": _comment,
    "reply": _reply,
    "react": _react,
    "resolve": _resolve,
    "accept": _accept,
    "merge": _merge,
    "close": _close,
    "reopen": _reopen,
}


def _to(address: str) -> Answer:
    path, mark, place = address.partition("#")
    return Answer(None, 303, {"Location": f"{quote(path)}{mark}{place}"})
