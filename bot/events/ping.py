"""GitHub says hello, after the webhook was made: the signature was right, and that is all it wants to know."""

from __future__ import annotations

from bot.events import Delivery, on
from bot.payloads import Event
from service.jobs import NewJob


@on("ping")
def ping(event: Event, delivery: Delivery) -> list[NewJob]:
    return []
