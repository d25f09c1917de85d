"""Who is signed in: a row for each session, and a cookie that names it, authenticated and unreadable."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography.fernet import InvalidToken
from sqlalchemy import Engine, delete

from ptopt.github.oauth import UserToken
from service.credentials import sealer
from service.database import reading, writing
from service.models import DashboardSession

SECONDS = 8 * 3600  # as long as GitHub's tokens of people


@dataclass(frozen=True, slots=True)
class Session:
    """`csrf` is in each form of the session, and known to nobody else."""

    id: str = field(repr=False)
    login: str
    token: str = field(repr=False)
    csrf: str = field(repr=False)


class Sessions:
    def __init__(self, engine: Engine, secret_key: str) -> None:
        self._engine = engine
        self._sealer = sealer(secret_key, "sessions of the dashboard")

    def open(self, login: str, token: UserToken, now: datetime) -> str:
        """Begins a session; what its cookie holds."""
        name = secrets.token_urlsafe(32)
        seconds = SECONDS if token.seconds is None else min(token.seconds, SECONDS)
        row = DashboardSession(
            id=_hashed(name),
            login=login,
            sealed_token=self._sealer.encrypt(token.value.encode()).decode(),
            expires_at=now + timedelta(seconds=seconds),
        )
        with writing(self._engine) as session:
            session.add(row)
        return self.seal({"session": name})

    def find(self, cookie: str, now: datetime) -> Session | None:
        """The session of a cookie; None when it is no cookie of ours, or its session is over."""
        name = self.opened(cookie, SECONDS).get("session")
        if name is None:
            return None
        with reading(self._engine) as session:
            row = session.get(DashboardSession, _hashed(name))
        if row is None or row.expires_at <= now:
            return None
        try:
            token = self._sealer.decrypt(row.sealed_token.encode()).decode()
        except InvalidToken:
            return None
        return Session(row.id, row.login, token, _hashed(f"form {name}"))

    def close(self, session_id: str) -> None:
        with writing(self._engine) as session:
            session.execute(delete(DashboardSession).where(DashboardSession.id == session_id))

    def seal(self, values: Mapping[str, str]) -> str:
        """Text for a cookie that only we can read, and write."""
        return self._sealer.encrypt(json.dumps(dict(values)).encode()).decode()

    def opened(self, sealed: str, seconds: int) -> dict[str, str]:
        """What `seal` was given; empty when it was not us, or longer ago than `seconds`."""
        try:
            found: dict[str, str] = json.loads(self._sealer.decrypt(sealed.encode(), ttl=seconds))
        except InvalidToken:
            return {}
        return found


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
