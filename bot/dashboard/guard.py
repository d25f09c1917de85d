"""Lets nobody in who is not signed in, and takes no form that is not of the session."""

from __future__ import annotations

import hmac
from datetime import datetime, timezone
from urllib.parse import parse_qs

from sqlalchemy import Engine
from starlette.exceptions import HTTPException
from starlette.requests import Request

from bot.body import BodyError, BodyReader
from bot.dashboard.access import Access, Viewer
from bot.dashboard.sessions import Session, Sessions
from ptopt.github.errors import ForbiddenError
from service.settings import Settings

COOKIE = "ptopt_session"
_LONGEST_FORM = 4096  # bytes


class SignedOutError(Exception):
    """The request is of nobody who is signed in."""


class Guard:
    """`sessions` is None where no secret key is set: then nobody can sign in."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        key = settings.secret_key
        self.sessions = None if key is None else Sessions(engine, key.get_secret_value())
        self._access = Access(settings.github_url)
        self._bodies = BodyReader(limit=_LONGEST_FORM, small=_LONGEST_FORM)

    def session(self, request: Request) -> Session:
        """Raises SignedOutError."""
        cookie = request.cookies.get(COOKIE, "")
        found = self.sessions.find(cookie, datetime.now(timezone.utc)) if self.sessions and cookie else None
        if found is None:
            raise SignedOutError
        return found

    def viewer(self, request: Request) -> Viewer:
        """Raises SignedOutError, also when GitHub ended the sign-in, and else what GitHub raises."""
        session = self.session(request)
        try:
            return self._access.of(session)
        except ForbiddenError as error:
            if error.status != 401:
                raise
            self.end(session)
            raise SignedOutError from None

    async def form(self, request: Request) -> dict[str, str]:
        """The fields of a form. Raises 4xx for what is none."""
        try:
            text = (await self._bodies.read(request)).decode("ascii")
            return {name: values[0] for name, values in parse_qs(text, max_num_fields=20).items()}
        except BodyError as error:
            raise HTTPException(error.status, error.detail) from None
        except ValueError:
            raise HTTPException(400, "The form cannot be read.") from None

    def end(self, session: Session) -> None:
        """Signs out."""
        if self.sessions is not None:
            self.sessions.close(session.id)
        self._access.forget(session.id)


def check_form(form: dict[str, str], csrf: str) -> None:
    """Raises 403 unless the form was on a page of the session."""
    if not hmac.compare_digest(form.get("csrf", "").encode(), csrf.encode()):
        raise HTTPException(403, "This form is out of date. Reload the page and try again.")
