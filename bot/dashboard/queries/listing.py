"""Pages of a list, newest first: each begins below the id that ended the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy import Row, Select
from sqlalchemy.orm import InstrumentedAttribute, Session
from typing_extensions import TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
PER_PAGE = 25


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """`older` is what `before` has to be on the next page; None on the last one."""

    items: tuple[T, ...]
    older: int | None


def newest(
    session: Session, wanted: Select[Unpack[Ts]], key: InstrumentedAttribute[int], before: int | None
) -> tuple[Sequence[Row[Unpack[Ts]]], bool]:
    """At most `PER_PAGE` rows, and whether there are more."""
    if before is not None:
        wanted = wanted.where(key < before)
    rows = session.execute(wanted.order_by(key.desc()).limit(PER_PAGE + 1)).all()
    return rows[:PER_PAGE], len(rows) > PER_PAGE
