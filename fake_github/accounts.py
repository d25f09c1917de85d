"""Who there is: people, organisations, bots, the App, its installations, and tokens."""

from __future__ import annotations

import base64
import functools
import json
import secrets
import time
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

# What ptopt's App asks for.
PERMISSIONS = {
    "checks": "write",
    "contents": "write",
    "issues": "read",
    "metadata": "read",
    "pull_requests": "write",
    "security_events": "write",
}
EVENTS = [
    "issue_comment",
    "pull_request",
    "pull_request_review_comment",
    "pull_request_review_thread",
]
ROLES = ("none", "read", "triage", "write", "maintain", "admin")


@functools.cache
def private_key() -> str:
    """One RSA key (PEM) for the process: making one takes a tenth of a second."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


@functools.cache
def public_key(private: str) -> str:
    key = serialization.load_pem_private_key(private.encode(), None).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.PEM, form).decode()


@dataclass(eq=False)
class Account:
    id: int
    login: str
    type: str  # User | Organization | Bot


@dataclass(eq=False)
class App:
    id: int
    slug: str
    name: str
    owner: Account
    private_key: str
    webhook_secret: str
    permissions: dict[str, str] = field(default_factory=lambda: dict(PERMISSIONS))
    events: list[str] = field(default_factory=lambda: list(EVENTS))
    client_secret: str = "a secret of the client"
    callback_urls: list[str] = field(default_factory=list)  # where a sign-in may lead back to

    @property
    def login(self) -> str:
        return f"{self.slug}[bot]"

    @property
    def client_id(self) -> str:
        return f"Iv23li{self.id:014d}"


@dataclass(eq=False)
class Installation:
    id: int
    app: App
    account: Account
    permissions: dict[str, str]
    repository_ids: set[int] = field(default_factory=set)
    suspended: bool = False
    created: float = field(default_factory=time.time)


@dataclass(eq=False)
class Token:
    value: str
    kind: str  # installation | actions | user
    login: str
    expires: float  # seconds since 1970
    permissions: dict[str, str] = field(default_factory=dict)  # a user's token has none: roles decide
    repository_ids: frozenset[int] | None = None  # None: those of the installation, or of the user
    installation: Installation | None = None
    app: App | None = None  # that a person signed in to with it


def new_token_value(prefix: str, claims: dict[str, object]) -> str:
    """A token in GitHub's new stateless form: `ghs_APPID_` and a JWT, so far longer than 40 characters."""
    parts = [json.dumps(part).encode() for part in ({"typ": "JWT", "alg": "ES256"}, claims)]
    parts.append(secrets.token_bytes(64))
    return prefix + ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
