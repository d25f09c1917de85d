"""The App itself: installations, tokens, the manifest flow, webhook deliveries."""

from __future__ import annotations

import time

from fake_github import shapes
from fake_github.accounts import Installation
from fake_github.http import Answer, ApiError, Call, forbidden, not_found, page, route
from fake_github.webhooks import Delivery

_MANIFEST_SECONDS = 3600
_LEVELS = ("none", "read", "write", "admin")


def _installation(call: Call) -> Installation:
    found = call.github.installations.get(call.number("installation_id"))
    if found is None or found.app is not call.github.app:
        raise not_found()
    return found


@route("GET", "/app", "app")
def get_app(call: Call) -> Answer:
    return Answer(shapes.app(call.github, call.github.app))


@route("GET", "/apps/{app_slug}", "any")
def get_app_by_slug(call: Call) -> Answer:
    if call.params["app_slug"] != call.github.app.slug:
        raise not_found()
    return Answer(shapes.app(call.github, call.github.app))


@route("GET", "/app/installations", "app")
def list_installations(call: Call) -> Answer:
    found = [each for each in call.github.installations.values() if each.app is call.github.app]
    return page(call, found, lambda each: shapes.installation(call.github, each))


@route("GET", "/app/installations/{installation_id}", "app")
def get_installation(call: Call) -> Answer:
    return Answer(shapes.installation(call.github, _installation(call)))


@route("GET", "/repos/{owner}/{repo}/installation", "app")
def get_repo_installation(call: Call) -> Answer:
    found = call.repo.installation
    if found is None:
        raise not_found()
    return Answer(shapes.installation(call.github, found))


@route("POST", "/app/installations/{installation_id}/access_tokens", "app")
def create_token(call: Call) -> Answer:
    installation = _installation(call)
    if installation.suspended:
        raise ApiError(403, "This installation has been suspended")
    permissions = call.data.get("permissions") or installation.permissions
    for name, level in permissions.items():
        if _LEVELS.index(level) > _LEVELS.index(installation.permissions.get(name, "none")):
            text = "The permissions requested are not granted to this installation."
            raise ApiError(422, text)
    ids = None
    if call.data.get("repository_ids") or call.data.get("repositories"):
        names = set(call.data.get("repositories") or ())
        wanted = set(call.data.get("repository_ids") or ())
        wanted |= {repo.id for repo in call.github.repos.values() if repo.name in names}
        ids = frozenset(wanted)
        if not ids <= installation.repository_ids:
            text = "There is at least one repository that does not exist or is not accessible to the parent installation."
            raise ApiError(422, text)
    value = call.github.installation_token(installation, permissions, ids)
    expires = shapes.stamp(call.github.tokens[value].expires)
    data = {"token": value, "expires_at": expires, "permissions": dict(permissions)}
    return Answer({**data, "repository_selection": "selected"}, 201)


@route("GET", "/installation/repositories", "token")
def list_repositories(call: Call) -> Answer:
    token = call.token
    if token is None or token.installation is None:
        raise forbidden()
    ids = token.installation.repository_ids if token.repository_ids is None else token.repository_ids
    found = [repo for repo in call.github.repos.values() if repo.id in ids]
    return page(call, found, shapes.repository, wrap="repositories")


@route("POST", "/app-manifests/{code}/conversions", "any")
def convert_manifest(call: Call) -> Answer:
    made = call.github.manifests.pop(call.params["code"], None)
    if made is None or made.made < time.time() - _MANIFEST_SECONDS:
        raise not_found()
    secret = {
        "client_secret": made.app.client_secret,
        "webhook_secret": made.app.webhook_secret,
        "pem": made.app.private_key,
    }
    return Answer({**shapes.app(call.github, made.app), **secret}, 201)


@route("GET", "/app/hook/deliveries", "app")
def list_deliveries(call: Call) -> Answer:
    found = sorted(call.github.deliveries, key=lambda each: -each.id)
    status = call.query.get("status")
    if status:
        found = [each for each in found if (200 <= each.status_code < 400) == (status == "success")]
    cursor = call.query.get("cursor")
    if cursor:
        if not cursor.startswith("v1_") or not cursor[3:].isdecimal():
            raise ApiError(400, "Invalid cursor")
        found = [each for each in found if each.id <= int(cursor[3:])]
    asked = call.query.get("per_page", "")
    size = min(max(int(asked), 1), 100) if asked.isdecimal() else 30
    headers = {}
    if len(found) > size:
        kept = f"&status={status}" if status else ""
        url = f"{call.github.url}{call.request.path}?per_page={size}&cursor=v1_{found[size].id}{kept}"
        headers["Link"] = f'<{url}>; rel="next"'
    return Answer([each.shape(full=False) for each in found[:size]], headers=headers)


def _delivery(call: Call) -> Delivery:
    for each in call.github.deliveries:
        if each.id == call.number("delivery_id"):
            return each
    raise not_found()


@route("GET", "/app/hook/deliveries/{delivery_id}", "app")
def get_delivery(call: Call) -> Answer:
    return Answer(_delivery(call).shape(full=True))


@route("POST", "/app/hook/deliveries/{delivery_id}/attempts", "app")
def redeliver(call: Call) -> Answer:
    call.github.webhooks.background(call.github.webhooks.redeliver(_delivery(call)))
    return Answer({}, 202)
