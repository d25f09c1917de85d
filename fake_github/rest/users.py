"""What a person sees who signed in with the App: its installations, and the repositories of each."""

from __future__ import annotations

from fake_github import shapes
from fake_github.accounts import Installation
from fake_github.http import Answer, ApiError, Call, forbidden, not_found, page, route
from fake_github.repos import Repo


def _repositories(call: Call, installation: Installation) -> list[Repo]:
    """Those that the person was given a role in: a public one is not enough."""
    return [
        repo
        for repo in call.github.repos.values()
        if repo.id in installation.repository_ids and repo.collaborators.get(call.login, "none") != "none"
    ]


def _visible(call: Call) -> list[Installation]:
    if call.token is None or call.token.app is None:
        text = "You must authenticate with an access token authorized to a GitHub App in order to list installations"
        raise ApiError(403, text)
    ours = (each for each in call.github.installations.values() if each.app is call.token.app)
    return [each for each in ours if _repositories(call, each)]


@route("GET", "/user/installations", "token")
def list_installations(call: Call) -> Answer:
    return page(
        call,
        _visible(call),
        lambda each: shapes.installation(call.github, each),
        wrap="installations",
    )


@route("GET", "/user/installations/{installation_id}/repositories", "token")
def list_repositories(call: Call) -> Answer:
    found = [each for each in _visible(call) if each.id == call.number("installation_id")]
    if not found:
        raise not_found()
    if found[0].suspended:
        raise forbidden()
    return page(
        call,
        _repositories(call, found[0]),
        lambda repo: {**shapes.repository(repo), "permissions": shapes.permissions(repo, call.login)},
        wrap="repositories",
    )
