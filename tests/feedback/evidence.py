"""Signals and comments as values, and hypothesis strategies of hostile ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from hypothesis import strategies as st

from feedback.labels import TIERS, Comment

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Row:
    """The columns of a signal that labels are made of."""

    kind: str
    value: str
    actor: str = "dev"
    actor_writes: bool | None = True
    source: str = "s"
    created_at: datetime = NOW


def at(hours: float) -> datetime:
    return NOW + timedelta(hours=hours)


def comment(
    id: int = 1,  # noqa: A002
    *,
    repository: int = 2,
    rule: str = "PTO101",
    pull: int | None = None,
    score: float = 0.5,
    author: str = "author",
) -> Comment:
    return Comment(id, repository * 10, repository, rule, id if pull is None else pull, score, author, NOW)


PEOPLE = st.sampled_from(["", "author", "dev", "rev", "eve", "mallory"])
_SAID = [(tier.kind, value) for tier in TIERS for value in tier.says]
SAID = st.sampled_from(
    [*_SAID, ("withdrawn", "+1"), ("thread", "resolved"), ("closed", "merged"), ("new", "?")]
)
ROWS = st.builds(
    lambda said, actor, writes, source, hours: Row(*said, actor, writes, source, at(hours)),
    SAID,
    PEOPLE,
    st.sampled_from([True, False, None]),
    st.sampled_from(["r1", "r2", "c1"]),
    st.integers(0, 50),
)
COMMENTS = st.builds(
    lambda number, rule, score: comment(number, rule=rule, score=score),
    st.integers(1, 12),
    st.sampled_from(["PTO101", "PTO102", "PTO201", "gone"]),
    st.floats(0, 1),
)
