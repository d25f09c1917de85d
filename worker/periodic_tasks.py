"""The periodic tasks: they see to it that no job is lost, and that nothing is kept for ever."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import structlog
from celery import Celery
from sqlalchemy import delete, exists, select, update

from feedback import rollout
from feedback.signals.schedule import next_poll
from ptopt.github.errors import GitHubError, UnavailableError
from ptopt.github.values import Delivery
from service import inbox, leases, versions
from service.database import reading, writing
from service.dispatch import publish_due
from service.jobs import Kind, NewJob
from service.models import (
    DashboardSession,
    DeliveryRow,
    Installation,
    Job,
    JobState,
    PolledPull,
    Repository,
    VersionUse,
)
from worker import retraining
from worker.job_context import Resources

_GITHUB_REMEMBERS = timedelta(days=3)  # GitHub remembers deliveries no longer
_OVERLAP = timedelta(hours=1)  # deliveries come with a delay
_LONGEST_WAIT = timedelta(minutes=30)  # between two tries: less than the overlap, or they are not seen again
_AT_ONCE = 100  # redeliveries that one look requests
_POLLS_AT_ONCE = 200
_USES = timedelta(days=100)  # of versions: longer than `feedback.rollout` looks back
_NAMED = timedelta(hours=2)  # that a job names who requested it
# While GitHub or the workers are away, one look is enough for all those that are missed.
_WAITS = exists().where(
    Job.repository_id == PolledPull.repository_id,
    Job.pull == PolledPull.pull,
    Job.kind == Kind.POLL.value,
    Job.state.in_((JobState.QUEUED.value, JobState.RUNNING.value)),
)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    """`run` is called every `every` seconds, with the time."""

    name: str
    every: float
    run: Callable[[datetime], object]


def periodic_tasks(resources: Resources, celery: Celery) -> list[PeriodicTask]:
    settings = resources.settings
    missed = MissedDeliveries(resources)
    return [
        PeriodicTask(
            "relay",
            1.0,
            lambda now: publish_due(resources.engine, celery, now, settings.jobs_per_installation),
        ),
        PeriodicTask("sweep", settings.sweep_every, lambda now: sweep(resources, now)),
        PeriodicTask("redeliver", settings.redeliver_every, missed.look),
        PeriodicTask("poll", min(60.0, settings.poll_every), lambda now: poll(resources, now)),
        PeriodicTask("prune", 3600.0, lambda now: prune(resources, now)),
        PeriodicTask("canary", 60.0, lambda now: look_at_canary(resources, now)),
        PeriodicTask("retrain", retraining.LOOK_EVERY, lambda now: retrain(resources, celery, now)),
    ]


def look_at_canary(resources: Resources, now: datetime) -> None:
    """Promote what is tried in some repositories, or take it back."""
    for subject in versions.SUBJECTS:
        with writing(resources.engine) as session:
            decision = rollout.watch(session, subject, now)
        if decision is not None and decision.move != "wait":
            _log.warning("version moved", subject=subject, move=decision.move, reason=decision.reason)


def retrain(resources: Resources, celery: Celery, now: datetime) -> str:
    """Start a retraining when it is due, or one that broke off again; why."""
    with reading(resources.engine) as session:
        reason = retraining.due(session, resources.settings, now)
    if reason:
        # Without a worker of the queue, no pile of messages grows.
        expires = retraining.LOOK_EVERY
        celery.send_task(retraining.TASK, args=[reason], queue=retraining.QUEUE, expires=expires)
    return reason


def sweep(resources: Resources, now: datetime) -> None:
    """Queue again what was begun and not finished, or published and not begun."""
    settings = resources.settings
    silent, lost = leases.sweep(
        resources.engine, now, lease=settings.lease, max_attempts=settings.max_attempts
    )
    if silent or lost:
        _log.warning("jobs recovered", silent_workers=silent, lost_messages=lost)


class MissedDeliveries:
    """Requests redelivery of the deliveries that failed: GitHub never repeats one by itself."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._since: datetime | None = None

    def look(self, now: datetime) -> int:
        """How many redeliveries were requested. Raises what GitHub raises.

        The next look goes back as far as this one when it raises, and when it leaves some for the next.
        """
        try:
            client = self._resources.clients.app()
        except UnavailableError:  # the App is not set up yet
            return 0
        since = max(now - _GITHUB_REMEMBERS, self._since or now - _GITHUB_REMEMBERS)
        requested = 0
        failure: GitHubError | None = None
        missed = self._missed(client.deliveries(since), now)
        for delivery in missed[:_AT_ONCE]:
            try:
                client.redeliver(delivery.id)
            except GitHubError as error:
                failure = error
                continue
            requested += 1
            _log.warning("redelivery requested", delivery=delivery.guid, event_name=delivery.event)
        if failure is not None:
            raise failure
        if len(missed) <= _AT_ONCE:
            self._since = now - _OVERLAP
        return requested

    def _missed(self, deliveries: Iterable[Delivery], now: datetime) -> list[Delivery]:
        """The last try of each delivery that never succeeded, and that we know nothing of. Oldest first.

        Tries come further and further apart, for as long as GitHub remembers: we may be away for a day.
        """
        every = timedelta(seconds=self._resources.settings.redeliver_every)
        succeeded: set[str] = set()
        tried: defaultdict[str, list[Delivery]] = defaultdict(list)
        for one in deliveries:  # of those that succeeded, nearly all, no more than the name is kept
            if 200 <= one.status_code < 300:
                succeeded.add(one.guid.lower())
            else:
                tried[one.guid.lower()].append(one)
        failed = []
        for tries in (tries for guid, tries in tried.items() if guid not in succeeded):
            last = max(tries, key=lambda one: (one.delivered_at, one.id))
            wait = min(every * 2.0 ** min(len(tries) - 2, 16), _LONGEST_WAIT)
            if len(tries) == 1 or now - last.delivered_at >= wait:
                failed.append(last)
        guids = [one.guid.lower() for one in failed]
        with reading(self._resources.engine) as session:
            known = set(session.scalars(select(DeliveryRow.guid).where(DeliveryRow.guid.in_(guids))))
        missed = [one for one in failed if one.guid.lower() not in known]
        return sorted(missed, key=lambda one: (one.delivered_at, one.id))


def poll(resources: Resources, now: datetime) -> int:
    """Queue a look at each pull request whose turn it is, and stop polling those on which nothing happens; how many."""
    every = timedelta(seconds=resources.settings.poll_every)
    due = select(PolledPull, Repository).join(Repository, Repository.id == PolledPull.repository_id)
    due = due.join(Installation, Installation.id == Repository.installation_id)
    due = due.where(PolledPull.next_poll_at <= now, Installation.suspended.is_(False), ~_WAITS)
    due = due.order_by(PolledPull.next_poll_at).limit(_POLLS_AT_ONCE)
    with writing(resources.engine) as session:
        jobs = []
        for polled, repository in session.execute(due.with_for_update(of=PolledPull, skip_locked=True)):
            polled.active_at = polled.active_at or now
            then = next_poll(now, polled.active_at, polled.closed_at, every)
            if then is None:
                session.delete(polled)
                continue
            polled.next_poll_at = then
            jobs.append(
                NewJob(
                    kind=Kind.POLL,
                    installation_id=repository.installation_id,
                    repository_id=repository.id,
                    repository=repository.full_name,
                    pull=polled.pull,
                    subject=now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"),
                )
            )
        inbox.add(session.connection(), jobs, now)
    return len(jobs)


def prune(resources: Resources, now: datetime) -> None:
    """Delete old deliveries, finished jobs and ended sessions, and after two hours who requested a job: the hourly budget
    needs no more."""
    before = now - timedelta(days=resources.settings.keep_days)
    over = [JobState.DONE.value, JobState.SUPERSEDED.value, JobState.DEAD.value]
    with writing(resources.engine) as session:
        session.execute(delete(DeliveryRow).where(DeliveryRow.received_at < before))
        session.execute(delete(Job).where(Job.state.in_(over), Job.finished_at < before))
        session.execute(delete(DashboardSession).where(DashboardSession.expires_at < now))
        session.execute(delete(VersionUse).where(VersionUse.at < now - _USES))
        named = update(Job).where(Job.actor != "", Job.created_at < now - _NAMED)
        session.execute(named.values(actor=""))
