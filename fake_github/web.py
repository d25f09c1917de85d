"""The pages of GitHub that we lead to: a new App from a manifest, its installation, and signing in with it.

Those of repositories and pull requests are in `conversation`.

The person who is signed in is `FakeGitHub.person`. A new App takes the place of `github.app`, and its webhook that of
`github.webhook_url`: from then on the fake GitHub delivers to the service that was set up.
"""

from __future__ import annotations

import json
import re
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

from markupsafe import Markup

from fake_github import conversation, html, oauth
from fake_github.http import Answer, Request, not_found

if TYPE_CHECKING:
    from fake_github.fake import FakeGitHub

_NEW = re.compile(r"(?:/organizations/([^/]+))?/settings/apps(/new)?")
_INSTALL = re.compile(r"/apps/([^/]+)/installations/new")
_LONGEST_NAME = 34
# What an App has to be allowed to get an event, of those that ptopt subscribes to.
_NEEDS = {
    "issue_comment": {"issues", "pull_requests"},
    "pull_request": {"pull_requests"},
    "pull_request_review_comment": {"pull_requests"},
    "pull_request_review_thread": {"pull_requests"},
}
_LEVELS = ("read", "write", "admin")


def handle(github: FakeGitHub, request: Request) -> Answer | None:
    """The answer to a request for one of these pages; None for any other path."""
    request.page = True
    form = {name: values[0] for name, values in parse_qs(request.body.decode("utf-8", "replace")).items()}
    if match := _NEW.fullmatch(request.path):
        if request.method != "POST":
            return _page("Register new GitHub App", "<p>An App begins with a manifest here.</p>")
        owner = match[1] or github.person
        return _confirm(owner, request, form) if match[2] else _create(github, owner, form)
    if match := _INSTALL.fullmatch(request.path):
        if match[1] != github.app.slug:
            raise not_found()
        return _installed(github) if request.method == "POST" else _install(github)
    if request.path == "/login/oauth/authorize":
        return _authorized(github, form) if request.method == "POST" else _authorize(github, request)
    if request.path == "/login/oauth/access_token" and request.method == "POST":
        return oauth.access_token(github, request, form)
    if request.path == "/favicon.ico":
        return Answer(None, 404)
    page = conversation.handle(github, request, form)
    request.page = page is not None
    return page


def _confirm(owner: str, request: Request, form: dict[str, str]) -> Answer:
    """What GitHub shows when a manifest is posted: the name, which may be changed, and a button."""
    problems, manifest = _read(form.get("manifest", ""))
    if problems:
        items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
        return _page("Invalid GitHub App configuration", f'<ul id="problems">{items}</ul>', 422)
    action = request.path.removesuffix("/new")
    fields = {"manifest": form["manifest"], "state": request.query.get("state", "")}
    hidden = "".join(f'<input type="hidden" name="{k}" value="{escape(v)}">' for k, v in fields.items())
    return _page(
        f"Create GitHub App for {owner}",
        f'<form action="{escape(action)}" method="post">{hidden}'
        f'<label for="name">GitHub App name</label> '
        f'<input id="name" name="name" value="{escape(manifest["name"])}" maxlength="{_LONGEST_NAME}" required> '
        f'<button type="submit">Create GitHub App for {escape(owner)}</button></form>',
    )


def _create(github: FakeGitHub, owner: str, form: dict[str, str]) -> Answer:
    """Makes the App, and sends the browser back with the code."""
    problems, manifest = _read(form.get("manifest", ""))
    name = form.get("name", "")[:_LONGEST_NAME]
    if problems or not name:
        return _page("Invalid GitHub App configuration", "<p>It has no name, or no manifest.</p>", 422)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    with github.lock:
        code = github.manifest(slug, owner=owner)
        app = github.manifests[code].app
        app.name, app.permissions = name, dict(manifest["default_permissions"])
        app.events = list(manifest["default_events"])
        app.callback_urls = list(manifest.get("callback_urls") or ())
        github.app, github.webhook_url = app, manifest["hook_attributes"]["url"]
    query = urlencode({"code": code, "state": form.get("state", "")})
    return Answer(None, 302, {"Location": f"{manifest['redirect_url']}?{query}"})


def _read(text: str) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with a manifest, and the manifest."""
    try:
        manifest = json.loads(text)
    except ValueError:
        return ["The manifest is not JSON"], {}
    if not isinstance(manifest, dict):
        return ["The manifest is not an object"], {}
    hook = manifest.get("hook_attributes") or {}
    callbacks = manifest.get("callback_urls") or []
    addresses = {
        **{f"callback_urls[{at}]": url for at, url in enumerate(callbacks)},
        "url": manifest.get("url"),
        "redirect_url": manifest.get("redirect_url"),
        "hook_attributes.url": hook.get("url") if isinstance(hook, dict) else None,
    }
    problems = [
        f"{name} must be a URL"
        for name, value in addresses.items()
        if not isinstance(value, str) or urlsplit(value).scheme not in ("http", "https")
    ]
    if not isinstance(manifest.get("name"), str) or len(manifest["name"]) > _LONGEST_NAME:
        problems.append(f"name is too long (maximum is {_LONGEST_NAME} characters)")
    permissions = manifest.get("default_permissions") or {}
    problems += [
        f"{name} has no level {level}" for name, level in permissions.items() if level not in _LEVELS
    ]
    for event in manifest.get("default_events") or ():
        if event not in _NEEDS:
            problems.append(f"Default events unsupported: {event}")
        elif _NEEDS[event].isdisjoint(permissions):
            problems.append(f"Default events are not supported by permissions: {event}")
    return problems, manifest


def _install(github: FakeGitHub) -> Answer:
    return _page(
        f"Install {github.app.name}",
        f'<form method="post"><button type="submit">Install on {escape(github.person)}</button></form>',
    )


def _installed(github: FakeGitHub) -> Answer:
    mine = [repo for repo in github.repos.values() if repo.owner.login == github.person]
    github.install(github.person, mine)
    items = "".join(
        f'<li><a href="/{escape(repo.full_name)}">{escape(repo.full_name)}</a></li>' for repo in mine
    )
    text = f"<p>It reviews the pull requests of:</p><ul>{items or '<li>no repository</li>'}</ul>"
    return _page(f"{github.app.name} is installed on {github.person}", text)


def _authorize(github: FakeGitHub, request: Request) -> Answer:
    """What GitHub shows to somebody who is to sign in, or why it does not."""
    problem = oauth.problem(github, request.query)
    if problem:
        return _page("Sign-in is not possible", f'<p id="problem">{escape(problem)}</p>', 404)
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{escape(request.query.get(name, ""))}">'
        for name in oauth.FIELDS
    )
    return _page(
        f"Authorize {github.app.name}",
        f'<form method="post">{hidden}<button type="submit">'
        f"Authorize {escape(github.app.name)} as {escape(github.person)}</button></form>",
    )


def _authorized(github: FakeGitHub, form: dict[str, str]) -> Answer:
    """Sends the browser back with a code."""
    if oauth.problem(github, form):
        return _page("Sign-in is not possible", "<p>Begin again.</p>", 404)
    query = urlencode({"code": oauth.new_code(github, form), "state": form.get("state", "")})
    return Answer(None, 302, {"Location": f"{form['redirect_uri']}?{query}"})


def _page(title: str, body: str, status: int = 200) -> Answer:
    return html.page("plain.html", status, title=title, body=Markup(body))
