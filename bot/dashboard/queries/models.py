"""Adapters and the ranker that reviews use: their cards, what happened to them, and how their comments fared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from feedback.calibration import cast_in
from feedback.labels import label_of
from ptopt.model.adapter_folder import RegistryError
from ptopt.model.registry import Entry, Event, Registry
from ptopt.ranker.model import Head, ranker, read
from service import versions
from service.models import CommentRow, LearningEvent, ReviewRow, Version

# Of a card. What else stands in one is the operator's business.
_SHOWN = ("name", "base", "recipe", "created", "parent", "dataset_hash", "prompt_version", "schema_version")
_NEWEST = 50  # versions, and events, that are shown


@dataclass(frozen=True, slots=True)
class AdapterLine:
    """An adapter of the registry. `problem`: why it may not be promoted."""

    hash: str
    state: str
    aliases: tuple[str, ...]
    card: dict[str, str]
    metrics: dict[str, str]
    problem: str


@dataclass(frozen=True, slots=True)
class UseLine:
    """How the reviews of the viewer's repositories with one model and adapter fared; "" for the rules alone."""

    model: str
    adapter: str
    reviews: int
    good: int
    bad: int


@dataclass(frozen=True, slots=True)
class RankerLine:
    """The weights that rank in all repositories without a trial. `version`: a retraining's; "" for those of ptopt."""

    version: str
    origin: str  # the rows it was learned from
    threshold: float
    features: int
    trees: int
    custom: bool  # from PTOPT_RANKER_WEIGHTS


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A version that a retraining made; `subject`: "ranker" or "adapter"."""

    subject: str
    hash: str
    state: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class LearningLine:
    """A step of a retraining, or what became of its result. Figures stay out: they are of all repositories."""

    at: datetime
    subject: str
    kind: str
    hash: str


@dataclass(frozen=True, slots=True)
class ModelPage:
    """`events` are those of the registry, `learning` those of retrainings, newest first. `problem`: why the registry cannot be read."""

    ranker: RankerLine
    versions: tuple[VersionLine, ...]
    learning: tuple[LearningLine, ...]
    adapters: tuple[AdapterLine, ...]
    events: tuple[Event, ...]
    uses: tuple[UseLine, ...]
    problem: str


def page(session: Session, scope: Collection[int], registry: Path | None, custom_ranker: bool) -> ModelPage:
    """Files are read, not verified: the workers do that before they use an adapter."""
    adapters: tuple[AdapterLine, ...] = ()
    events: tuple[Event, ...] = ()
    problem = ""
    if registry is not None:
        try:
            found = Registry(registry)
            adapters = tuple(_adapter(entry) for entry in reversed(found.entries(verify=False)))
            events = tuple(reversed(found.history()))
        except (RegistryError, OSError):  # the text names folders of the service
            problem = "The registry of the service cannot be read; its log has the reason."
    ranks = _ranker(session, custom_ranker)
    return ModelPage(
        ranks, _versions(session), _learning(session), adapters, events, _uses(session, scope), problem
    )


def _ranker(session: Session, custom: bool) -> RankerLine:
    version = versions.in_use(session, versions.RANKER).active
    used = read(versions.weights(session, version)) if version else ranker()
    heads: list[Head] = [used.useful, *([used.right] if used.right else [])]
    names = {name for head in heads for name in head.weights}
    return RankerLine(
        version, used.origin, used.threshold, len(names), sum(len(head.trees) for head in heads), custom
    )


def _versions(session: Session) -> tuple[VersionLine, ...]:
    columns = Version.subject, Version.hash, Version.state, Version.changed_at
    rows = session.execute(select(*columns).order_by(Version.changed_at.desc()).limit(_NEWEST))
    return tuple(VersionLine(*row) for row in rows)


def _learning(session: Session) -> tuple[LearningLine, ...]:
    columns = LearningEvent.at, LearningEvent.subject, LearningEvent.kind, LearningEvent.hash
    rows = session.execute(select(*columns).order_by(LearningEvent.id.desc()).limit(_NEWEST))
    return tuple(LearningLine(*row) for row in rows)


def _adapter(entry: Entry) -> AdapterLine:
    metrics = entry.card.get("metrics")
    return AdapterLine(
        hash=entry.hash,
        state=entry.state.value,
        aliases=entry.aliases,
        card={name: str(entry.card[name]) for name in _SHOWN if entry.card.get(name) not in (None, "")},
        metrics={str(k): str(v) for k, v in metrics.items()} if isinstance(metrics, Mapping) else {},
        # The other texts name folders.
        problem=entry.problem if entry.card else "its card cannot be read",
    )


def _uses(session: Session, scope: Collection[int]) -> tuple[UseLine, ...]:
    key = ReviewRow.model, ReviewRow.adapter
    counted = select(*key, func.count()).where(ReviewRow.repository_id.in_(scope)).group_by(*key)
    reviews = {(model, adapter): number for model, adapter, number in session.execute(counted)}
    by_comment = defaultdict(list)
    for vote in cast_in(session, scope):
        by_comment[vote.comment.id].append(vote)
    made = select(CommentRow.id, *key).join(ReviewRow, ReviewRow.id == CommentRow.review_id)
    fates: Counter[tuple[str, str, bool | None]] = Counter()
    for comment, model, adapter in session.execute(made.where(CommentRow.id.in_(list(by_comment)))):
        fates[model, adapter, label_of(by_comment[comment]).good] += 1
    lines = [
        UseLine(model, adapter, number, fates[model, adapter, True], fates[model, adapter, False])
        for (model, adapter), number in reviews.items()
    ]
    return tuple(sorted(lines, key=lambda line: (-line.reviews, line.model, line.adapter)))
