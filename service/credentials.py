"""The App's credentials: from the settings, else what `/setup` stored, encrypted with the service's secret key."""

from __future__ import annotations

import base64
import json
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import SecretStr
from sqlalchemy import Engine, select

from service.database import reading, writing
from service.models import AppCredentials
from service.settings import Settings

_RETRY_SECONDS = 2.0


class CredentialsError(Exception):
    """There are stored credentials, and they cannot be read. The text says why."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are on GitHub. `webhook_secret` is "" when only the web application knows it, `slug` when only GitHub does,
    `client_id` and `client_secret` when nobody can sign in."""

    app_id: int
    private_key: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    slug: str = ""
    client_id: str = ""
    client_secret: str = field(repr=False, default="")


def load(engine: Engine, settings: Settings) -> Credentials | None:
    """The credentials in force; None before `/setup`. Raises CredentialsError."""
    given = settings.webhook_secret.get_secret_value() if settings.webhook_secret else ""
    client_id = settings.client_id or ""
    client_secret = settings.client_secret.get_secret_value() if settings.client_secret else ""
    if settings.app_id and settings.private_key:
        key = settings.private_key.get_secret_value()
        return Credentials(settings.app_id, key, given, "", client_id, client_secret)
    with reading(engine) as session:
        row = session.scalars(select(AppCredentials).order_by(AppCredentials.created_at.desc())).first()
    if row is None:
        return None
    if settings.secret_key is None:
        raise CredentialsError(
            "PTOPT_SECRET_KEY is not set: the stored credentials of the App cannot be read"
        )
    try:
        opened = json.loads(_sealer(settings.secret_key.get_secret_value()).decrypt(row.sealed.encode()))
    except InvalidToken:
        raise CredentialsError(
            "the stored credentials of the App were encrypted with another PTOPT_SECRET_KEY"
        ) from None
    # What was rotated stands in the settings. Versions before the dashboard stored no client.
    return Credentials(
        row.id,
        opened["private_key"],
        given or opened["webhook_secret"],
        row.slug,
        client_id or opened.get("client_id", ""),
        client_secret or opened.get("client_secret", ""),
    )


def store(engine: Engine, secret_key: str, new: Credentials, now: datetime) -> bool:
    """Stores the first App's credentials; False when there was one already."""
    secrets = {
        "private_key": new.private_key,
        "webhook_secret": new.webhook_secret,
        "client_id": new.client_id,
        "client_secret": new.client_secret,
    }
    sealed = _sealer(secret_key).encrypt(json.dumps(secrets).encode())
    with writing(engine) as session:
        if session.scalars(select(AppCredentials.id)).first() is not None:
            return False
        session.add(AppCredentials(id=new.app_id, slug=new.slug, sealed=sealed.decode(), created_at=now))
    return True


def exists(engine: Engine, settings: Settings) -> bool:
    """Is there an App? Also when its credentials cannot be read."""
    if settings.app_id is not None:
        return True
    with reading(engine) as session:
        return session.scalars(select(AppCredentials.id)).first() is not None


class WebhookSecrets:
    """The secrets that deliveries may be signed with. Those that `/setup` stored are read once they are there."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings
        self._lock = threading.Lock()
        self._last_look = float("-inf")
        self._previous = _bytes(settings.webhook_secret_previous)
        given = _bytes(settings.webhook_secret)
        self._known = given + self._previous if given else ()

    def known(self) -> tuple[bytes, ...]:
        """Without waiting; empty when there is none yet, or none was looked for."""
        return self._known

    def look(self) -> tuple[bytes, ...]:
        """Reads the database, not more often than every two seconds. Raises CredentialsError."""
        with self._lock:
            if not self._known and time.monotonic() - self._last_look > _RETRY_SECONDS:
                self._last_look = time.monotonic()
                found = load(self._engine, self._settings)
                if found and found.webhook_secret:
                    self._known = (found.webhook_secret.encode(), *self._previous)
            return self._known


def _bytes(secret: SecretStr | None) -> tuple[bytes, ...]:
    return (secret.get_secret_value().encode(),) if secret else ()


def _sealer(secret_key: str) -> Fernet:
    return sealer(secret_key, "credentials of the App")


def sealer(secret_key: str, purpose: str) -> Fernet:
    """Encrypts and authenticates, with a key of its own for each purpose: the secret key also keys hashes."""
    key = HKDF(SHA256(), 32, salt=None, info=f"ptopt: {purpose}".encode()).derive(secret_key.encode())
    return Fernet(base64.urlsafe_b64encode(key))
