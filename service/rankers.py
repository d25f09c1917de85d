"""Versions of the ranker: which of them rank where, and how one takes the place of another.

A retraining adds versions (`training/retrain`). Each move is one transaction with its event, so that a process may end
anywhere. Workers read the states at each review: a move needs no restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.models import LearningEvent, RankerState, RankerVersion

SUBJECT = "ranker"
_IN_USE = (RankerState.ACTIVE.value, RankerState.CANARY.value)


class RankerError(Exception):
    """The move is refused; the message is one line."""


@dataclass(frozen=True, slots=True)
class InUse:
    """Hashes; "" where there is none: then the ranker that ptopt carries is active, and there is no canary."""

    active: str = ""
    canary: str = ""

    def of(self, repository_id: int, share: float) -> str:
        """The version that ranks in a repository. One that has the canary keeps it when the share grows."""
        return self.canary if self.canary and in_canary(repository_id, share) else self.active


def in_canary(repository_id: int, share: float) -> bool:
    """Is the repository among the `share` of them that try a new version?"""
    digest = hashlib.sha256(f"ranker\0{repository_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def in_use(session: Session) -> InUse:
    rows = session.execute(
        select(RankerVersion.state, RankerVersion.hash).where(RankerVersion.state.in_(_IN_USE))
    )
    found = {row.state: row.hash for row in rows}
    return InUse(found.get(_IN_USE[0], ""), found.get(_IN_USE[1], ""))


def weights(session: Session, hash_: str) -> str:
    """The data file of a version. Raises RankerError when it is not what was added."""
    text = session.scalar(select(RankerVersion.weights).where(RankerVersion.hash == hash_))
    if text is None or hashlib.sha256(text.encode()).hexdigest() != hash_:
        raise RankerError(f"there is no version {hash_[:12]}, or it was changed since it was added")
    return text


def promote(session: Session, now: datetime, detail: Mapping[str, Any]) -> str:
    """The canary becomes the active version; its hash. Raises RankerError without one."""
    found = _locked(session, RankerState.CANARY)
    if found is None:
        raise RankerError("there is no canary to promote")
    before = _locked(session, RankerState.ACTIVE)
    if before is not None:
        _move(session, before, RankerState.RETIRED, now)
    _move(session, found, RankerState.ACTIVE, now)
    detail = {**detail, "before": before.hash if before is not None else ""}
    _log(session, "promoted", found.hash, now, detail)
    return found.hash


def roll_back(session: Session, now: datetime, detail: Mapping[str, Any]) -> str:
    """Take the canary back, or without one the active version: the one that it replaced is active again, if there is one.

    The hash of what was taken back. Raises RankerError where there is nothing to take back.
    """
    canary = _locked(session, RankerState.CANARY)
    if canary is not None:
        _move(session, canary, RankerState.ROLLED_BACK, now)
        _log(session, "rolled back", canary.hash, now, {**detail, "was": "canary"})
        return canary.hash
    active = _locked(session, RankerState.ACTIVE)
    if active is None:
        raise RankerError("the ranker that ptopt carries is in use: there is nothing to roll back")
    _move(session, active, RankerState.ROLLED_BACK, now)
    before = session.get(RankerVersion, _replaced_by(session, active.hash), with_for_update=True)
    if before is not None and before.state == RankerState.RETIRED.value:
        _move(session, before, RankerState.ACTIVE, now)
    detail = {**detail, "was": "active", "before": before.hash if before is not None else ""}
    _log(session, "rolled back", active.hash, now, detail)
    return active.hash


def _replaced_by(session: Session, hash_: str) -> str:
    """What was active before the newest promotion of a version; "" for the one that ptopt carries."""
    promotions = select(LearningEvent).where(
        LearningEvent.subject == SUBJECT, LearningEvent.kind == "promoted", LearningEvent.hash == hash_
    )
    newest = session.scalars(promotions.order_by(LearningEvent.id.desc()).limit(1)).first()
    return "" if newest is None else str(newest.detail.get("before", ""))


def _locked(session: Session, state: RankerState) -> RankerVersion | None:
    wanted = select(RankerVersion).where(RankerVersion.state == state.value).with_for_update()
    return session.scalars(wanted).one_or_none()


def _move(session: Session, version: RankerVersion, state: RankerState, now: datetime) -> None:
    """At once: at most one version is active, and one a canary, at each statement."""
    moved = update(RankerVersion).where(RankerVersion.hash == version.hash)
    session.execute(moved.values(state=state.value, changed_at=now))


def _log(session: Session, kind: str, hash_: str, now: datetime, detail: Mapping[str, Any]) -> None:
    session.add(LearningEvent(subject=SUBJECT, kind=kind, hash=hash_, detail=dict(detail), at=now))
