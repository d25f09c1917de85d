"""Repositories were added to an installation, or taken from it."""

from __future__ import annotations

from bot.events import Delivery, on
from bot.events.installation import installation_job
from bot.payloads import InstallationRepositoriesEvent
from service.jobs import NewJob


@on("installation_repositories", "added", "removed")
def changed(event: InstallationRepositoriesEvent, delivery: Delivery) -> list[NewJob]:
    return [
        installation_job(
            event,
            event.installation,
            delivery,
            added=event.repositories_added,
            removed=event.repositories_removed,
        )
    ]
