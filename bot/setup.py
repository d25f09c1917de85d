"""`/setup`: one click makes the GitHub App. Open with the setup token, and only until there is an App.

Who has no token, a wrong one, or comes too late gets the same page and status.

The page posts a manifest to GitHub; GitHub sends the browser back to `/setup/callback` with a code, which we exchange
for the App's credentials. They are stored encrypted, or shown once to be copied where no secret key is set.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Coroutine
from datetime import datetime, timezone
from typing import Any

import structlog
from fastapi import APIRouter
from fastapi.routing import APIRoute
from sqlalchemy import Engine
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from bot import pages
from bot.manifest import manifest, new_app_url
from ptopt.github.app import NewApp, convert_manifest
from ptopt.github.endpoint import Endpoint
from ptopt.github.errors import GitHubError
from service.credentials import Credentials, exists, store
from service.database import insert, writing
from service.models import DeliveryRow
from service.settings import Settings

_STATE_SECONDS = 3600  # GitHub's code is good for an hour, too
_STATE = re.compile(r"([0-9]{1,12})\.([\w-]{22})\.([0-9a-f]{64})", re.ASCII)
_CODE = re.compile(r"[\w-]{1,100}", re.ASCII)
_ORGANIZATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_log = structlog.get_logger(__name__)


def router(settings: Settings, engine: Engine) -> APIRouter:
    web = Endpoint.of(settings.github_url).web
    routes = APIRouter(prefix="/setup", route_class=_PageRoute)

    @routes.get("")
    def start(token: str = "", organization: str = "") -> Response:
        setup_token = _open(settings, engine)
        if not hmac.compare_digest(token.encode(), setup_token.encode()):
            _log.warning("setup page requested with a wrong token")
            raise HTTPException(404)
        organization = organization.strip()
        wrong = bool(organization) and not _ORGANIZATION.fullmatch(organization)
        action = new_app_url(
            settings.github_url, new_state(setup_token, time.time()), "" if wrong else organization
        )
        body = pages.start(
            action=action,
            manifest=manifest(settings.public_url),
            token=token,
            organization=organization,
            wrong=wrong,
            public_url=settings.public_url,
            stores=settings.secret_key is not None,
        )
        return _page(body, 422 if wrong else 200, form_to=web)

    @routes.get("/callback")
    def callback(code: str = "", state: str = "") -> Response:
        setup_token = _open(settings, engine)
        if not state_is_ours(state, setup_token, time.time()):
            raise HTTPException(
                400,
                "This request did not start on the setup page, or has expired. Open the setup page again.",
            )
        if not _CODE.fullmatch(code):
            raise HTTPException(400, "GitHub sent no code. Open the setup page again.")
        if not _claim(engine, state):
            raise HTTPException(400, "This link has already been used. Open the setup page again.")
        try:
            app = convert_manifest(settings.github_url, code)
        except GitHubError as error:
            _log.error("the manifest's code was not accepted", error=str(error))
            raise HTTPException(
                502, "GitHub did not return the App's credentials. Open the setup page again."
            ) from None
        _log.info("GitHub App created", app_id=app.id, slug=app.slug)
        install = f"{app.html_url}/installations/new"
        if not install.startswith(web + "/"):
            install = f"{web}/apps/{app.slug}/installations/new"
        return _page(_keep(settings, engine, app, install))

    return routes


class _PageRoute(APIRoute):
    """Answers errors as pages: whoever is here looks at them in a browser."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except HTTPException as error:
                closed = error.status_code == 404
                return _page(pages.closed() if closed else pages.refused(error.detail), error.status_code)

        return answer


def announce(settings: Settings, engine: Engine) -> None:
    """Say in the log what is still to be done before anything can be reviewed."""
    if exists(engine, settings):
        return
    if settings.setup_token is None:
        _log.warning(
            "there is no GitHub App yet: set PTOPT_SETUP_TOKEN and open /setup, or set PTOPT_APP_ID, "
            "PTOPT_PRIVATE_KEY and PTOPT_WEBHOOK_SECRET"
        )
    else:
        _log.warning(
            "there is no GitHub App yet: open this page, with the value of PTOPT_SETUP_TOKEN appended",
            page=f"{settings.public_url}/setup?token=",
        )


def _keep(settings: Settings, engine: Engine, app: NewApp, install: str) -> str:
    """Stores the credentials; the page that says so, or that shows them."""
    if settings.secret_key is None:
        return pages.copy(app, install)
    new = Credentials(app.id, app.private_key, app.webhook_secret, app.slug, app.client_id, app.client_secret)
    if not store(engine, settings.secret_key.get_secret_value(), new, datetime.now(timezone.utc)):
        raise HTTPException(
            409, "Another App was set up in the meantime. Delete the one that you just created."
        )
    return pages.stored(app.slug, install)


def new_state(setup_token: str, now: float) -> str:
    """Goes to GitHub and back: when it expires, something random, and our signature over both."""
    text = f"{int(now) + _STATE_SECONDS}.{secrets.token_urlsafe(16)}"
    return f"{text}.{_signed(text, setup_token)}"


def state_is_ours(state: str, setup_token: str, now: float) -> bool:
    match = _STATE.fullmatch(state)
    if match is None:
        return False
    right = hmac.compare_digest(_signed(f"{match[1]}.{match[2]}", setup_token), match[3])
    return right and now < int(match[1])


def _claim(engine: Engine, state: str) -> bool:
    """Whether nobody came back with this state before, to whichever of our processes."""
    guid = f"setup-{state.split('.')[1]}"
    with writing(engine) as session:
        # Like a delivery: what counts is that its id can be claimed once. It is kept for longer than a state is good.
        row = {"guid": guid, "event": "setup", "action": "", "received_at": datetime.now(timezone.utc)}
        claimed = (
            insert(session, DeliveryRow).values(row).on_conflict_do_nothing().returning(DeliveryRow.guid)
        )
        return session.scalar(claimed) is not None


def _signed(text: str, setup_token: str) -> str:
    return hmac.new(setup_token.encode(), f"setup state {text}".encode(), hashlib.sha256).hexdigest()


def _open(settings: Settings, engine: Engine) -> str:
    """The setup token. Raises 404 while `/setup` is closed, as for a wrong token: nobody learns whether it is open."""
    if settings.setup_token is None or exists(engine, settings):
        raise HTTPException(404)
    return settings.setup_token.get_secret_value()


def _page(body: str, status: int = 200, form_to: str = "'none'") -> Response:
    style = f"'sha256-{pages.STYLE_SHA256}'"
    return HTMLResponse(
        body,
        status,
        {
            "Content-Security-Policy": (
                f"default-src 'none'; style-src {style}; form-action 'self' {form_to}; "
                "base-uri 'none'; frame-ancestors 'none'"
            ).replace("'self' 'none'", "'none'"),
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            # The address holds the setup token. GitHub wants to see the origin of the post, and gets no more.
            "Referrer-Policy": "strict-origin",
            "Cache-Control": "no-store",
        },
    )
