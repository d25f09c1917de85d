"""What Prometheus reads at `/metrics`. Labels have few values: none comes from a stranger."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import Engine, func, select

from service.database import reading
from service.models import EndedAnalyses, Job, JobState, ReviewRow

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_RECENT = timedelta(hours=1)
_MAX_REVIEWS = 1000
_ADAPTERS = 5  # that are named; more than champion and challenger are not in use for long
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The metrics of one application, in a registry of its own."""

    def __init__(self, engine: Engine, events: Iterable[str]) -> None:
        self._registry = CollectorRegistry()
        self._events = frozenset(events)
        self._deliveries = Counter(
            "ptopt_deliveries",
            "Deliveries with a valid signature, by outcome.",
            ("event", "outcome"),
            registry=self._registry,
        )
        self.rejected = Counter(
            "ptopt_deliveries_rejected",
            "Requests to the webhook that were rejected before their payload was trusted.",
            ("reason",),
            registry=self._registry,
        )
        self.accept_seconds = Histogram(
            "ptopt_accept_seconds",
            "Seconds from the first byte of a delivery to its answer.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._registry.register(_FromDatabase(engine))

    def delivery(self, event: str, outcome: str) -> None:
        self._deliveries.labels(event if event in self._events else "other", outcome).inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _FromDatabase(Collector):
    """What only the database knows, because workers are other processes. Read at each scrape."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> Iterable[Metric]:
        return ()  # so that registering it does not ask the database

    def collect(self) -> Iterator[Metric]:
        now = datetime.now(timezone.utc)
        jobs = GaugeMetricFamily("ptopt_jobs", "Jobs in the database.", labels=("kind", "state"))
        overdue = GaugeMetricFamily(
            "ptopt_oldest_due_job_seconds",
            "Seconds since the job that has waited longest for a worker was due.",
            labels=("kind",),
        )
        latency = GaugeMetricFamily(
            "ptopt_review_latency_seconds",
            "Seconds from a delivery to its review, posted or silent, of the reviews of the last hour.",
            labels=("quantile",),
        )
        ended = CounterMetricFamily(
            "ptopt_ended_analyses",
            "Analyses of files that exceeded a limit, by limit.",
            labels=("reason",),
        )
        due = (Job.state == JobState.QUEUED.value, Job.due_at <= now)
        recent = select(
            ReviewRow.received_at,
            ReviewRow.posted_at,
            ReviewRow.model,
            ReviewRow.adapter,
            ReviewRow.model_note,
        ).order_by(ReviewRow.id.desc())
        with reading(self._engine) as session:
            counts = session.execute(select(Job.kind, Job.state, func.count()).group_by(Job.kind, Job.state))
            for kind, state, number in counts:
                jobs.add_metric((kind, state), number)
            for kind, since in session.execute(
                select(Job.kind, func.min(Job.due_at)).where(*due).group_by(Job.kind)
            ):
                overdue.add_metric((kind,), (now - since).total_seconds())
            for reason, number in session.execute(select(EndedAnalyses.reason, EndedAnalyses.number)):
                ended.add_metric((reason,), number)
            reviews = session.execute(recent.limit(_MAX_REVIEWS)).all()
        reviews = [review for review in reviews if review.posted_at > now - _RECENT]
        times = sorted((review.posted_at - review.received_at).total_seconds() for review in reviews)
        for quantile in (0.5, 0.95, 0.99) if times else ():
            at = min(len(times) - 1, int(quantile * len(times)))
            latency.add_metric((str(quantile),), times[at])
        models = GaugeMetricFamily(
            "ptopt_recent_reviews",
            "Reviews of the last hour, by use of the model and by adapter.",
            labels=("model", "adapter"),
        )
        for labels, number in _by_model((r.model, r.adapter, r.model_note) for r in reviews).items():
            models.add_metric(labels, number)
        yield from (jobs, overdue, latency, ended, models)


def _by_model(reviews: Iterable[tuple[str, str, str]]) -> Counted[tuple[str, str]]:
    """(none | used | unavailable, the beginning of the adapter's hash) -> number. Of the rarer adapters it is "other"."""
    found = Counted(
        (("unavailable" if note else "used") if model else "none", adapter[:12])
        for model, adapter, note in reviews
    )
    adapters = Counted[str]()
    for (_, adapter), number in found.items():
        adapters[adapter] += number
    named = {adapter for adapter, _ in adapters.most_common(_ADAPTERS)}
    counts = Counted[tuple[str, str]]()
    for (what, adapter), number in found.items():
        counts[what, adapter if adapter in named else "other"] += number
    return counts
