"""GitHub says hello, after the webhook was made: the signature was right, and that is all it wants to know."""

from __future__ import annotations

from bot.events import Delivery, on
from bot.jobs import NewJob
from bot.payloads import Event


@on("ping")
def ping(event: Event, delivery: Delivery) -> list[NewJob]:
    return []
