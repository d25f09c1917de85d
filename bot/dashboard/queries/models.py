"""Adapters and the ranker that reviews use: their cards, what happened to them, and how their comments fared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from feedback.calibration import cast_in
from feedback.labels import label_of
from ptopt.model.adapter_folder import RegistryError
from ptopt.model.registry import Entry, Event, Registry
from ptopt.ranker.model import Head, ranker
from service.models import CommentRow, ReviewRow

# Of a card. What else stands in one is the operator's business.
_SHOWN = ("name", "base", "recipe", "created", "parent", "dataset_hash", "prompt_version", "schema_version")


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
    origin: str  # the rows it was learned from
    threshold: float
    features: int
    trees: int
    custom: bool  # from PTOPT_RANKER_WEIGHTS


@dataclass(frozen=True, slots=True)
class ModelPage:
    """`events` are those of the registry, newest first. `problem`: why the registry cannot be read."""

    ranker: RankerLine
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
    return ModelPage(_ranker(custom_ranker), adapters, events, _uses(session, scope), problem)


def _ranker(custom: bool) -> RankerLine:
    used = ranker()
    heads: list[Head] = [used.useful, *([used.right] if used.right else [])]
    names = {name for head in heads for name in head.weights}
    return RankerLine(used.origin, used.threshold, len(names), sum(len(head.trees) for head in heads), custom)


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
