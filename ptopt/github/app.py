"""What the App does as itself: deliveries of its webhook, its installations, and how it comes to be."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ptopt.github import parsing
from ptopt.github.auth import AppAuth
from ptopt.github.endpoint import Endpoint, repo_path
from ptopt.github.transport import Transport
from ptopt.github.values import Delivery


@dataclass(frozen=True, slots=True)
class NewApp:
    """An App right after its creation from a manifest. GitHub shows these secrets once."""

    id: int
    slug: str
    private_key: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    html_url: str
    client_id: str = ""
    client_secret: str = field(repr=False, default="")


# A busy App gets ten thousand deliveries, the most of other lists, within hours. Only the first look after a start reads all
# that GitHub remembers.
_DELIVERY_PAGES = 5_000


class AppClient:
    """Acts with the App's JWT, not in an installation."""

    def __init__(self, auth: AppAuth) -> None:
        self._auth = auth
        self._transport = auth.transport

    def slug(self) -> str:
        return self._auth.slug()

    def deliveries(self, since: datetime) -> Iterator[Delivery]:
        """Deliveries made at or after `since`, newest first. GitHub remembers three days.

        TooLargeError after half a million of them.
        """
        each = parsing.each(parsing.delivery)
        for page in self._transport.pages("/app/hook/deliveries", each, most=_DELIVERY_PAGES):
            for delivery in page:
                if delivery.delivered_at < since:
                    return
                yield delivery

    def redeliver(self, delivery_id: int) -> None:
        self._transport.write(
            "POST", f"/app/hook/deliveries/{int(delivery_id)}/attempts", None, parsing.nothing
        )

    def installation_of(self, repo: str) -> int:
        """NotFoundError when the App is not installed there."""
        return self._transport.get(f"{repo_path(repo)}/installation", lambda data: int(data["id"]))


def convert_manifest(base_url: str, code: str) -> NewApp:
    """Ends the manifest flow: exchanges the code, good once and for an hour, for the App's secrets.

    ValueError when `code` cannot be one. RejectedError or NotFoundError when GitHub does not take it.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,200}", code):
        raise ValueError("not the code of a manifest")
    transport = Transport(Endpoint.of(base_url), None)
    return transport.write(
        "POST", f"/app-manifests/{code}/conversions", None, _new_app, shown="/app-manifests/…/conversions"
    )


def _new_app(data: Any) -> NewApp:
    return NewApp(
        id=int(data["id"]),
        slug=str(data["slug"]),
        private_key=str(data["pem"]),
        webhook_secret=str(data.get("webhook_secret") or ""),
        html_url=str(data["html_url"]),
        client_id=str(data.get("client_id") or ""),
        client_secret=str(data.get("client_secret") or ""),
    )


def _without_code(record: logging.LogRecord) -> bool:
    """httpx logs URLs, and a code that was not exchanged yet opens the App to anybody."""
    text = record.getMessage()
    if "/app-manifests/" in text:
        record.msg, record.args = re.sub(r"(/app-manifests/)[^/\s]+", r"\1…", text), ()
    return True


logging.getLogger("httpx").addFilter(_without_code)
