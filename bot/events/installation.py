"""The App was installed somewhere, removed, suspended, or got other permissions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from bot.events import Delivery, on
from bot.payloads import Event, InstallationEvent, InstalledOn, InstalledRepository, Repository
from service import jobs
from service.jobs import InstallationAction, InstallationPayload, Kind, NewJob


@on("installation", "created", "deleted", "suspend", "unsuspend", "new_permissions_accepted")
def changed(event: InstallationEvent, delivery: Delivery) -> list[NewJob]:
    return [installation_job(event, event.installation, delivery, added=event.repositories or ())]


def installation_job(
    event: Event,
    installation: InstalledOn,
    delivery: Delivery,
    *,
    added: Iterable[InstalledRepository] = (),
    removed: Iterable[Repository] = (),
) -> NewJob:
    account = installation.account
    return NewJob(
        Kind.INSTALLATION,
        installation_id=installation.id,
        subject=delivery.digest(),
        payload=InstallationPayload(
            action=cast(InstallationAction, event.action),  # of those that are registered here
            installation_id=installation.id,
            account=(account.login or account.slug or "") if account else "",
            repositories=[jobs.InstalledRepository(each.id, each.full_name, each.private) for each in added],
            removed=[repository.id for repository in removed],
        ),
        actor=event.actor.login,
    )
