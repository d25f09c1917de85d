"""Versions of the ranker and of the adapter: which of them is in use where, and how one takes the place of another.

A retraining adds versions (`training/retrain`). What an operator chose (PTOPT_RANKER_WEIGHTS, the registry of adapters) is in use
where there is none. Each move is one transaction with its event, so that a process may end
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

from service.models import LearningEvent, Version, VersionState

RANKER, ADAPTER = "ranker", "adapter"
SUBJECTS = (RANKER, ADAPTER)
_IN_USE = (VersionState.ACTIVE.value, VersionState.CANARY.value)


class VersionError(Exception):
    """The move is refused; the message is one line."""


@dataclass(frozen=True, slots=True)
class InUse:
    """Hashes; "" where there is none: then what the operator chose is active, or the ranker that ptopt carries."""

    active: str = ""
    canary: str = ""

    def of(self, repository_id: int, share: float) -> str:
        """The version of the ranker for a repository. One that has the canary keeps it when the share grows."""
        return self.canary if self.canary and in_canary(repository_id, share) else self.active


def in_canary(repository_id: int, share: float) -> bool:
    """Is the repository among the `share` of them that try a new version?"""
    digest = hashlib.sha256(f"ranker\0{repository_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def in_use(session: Session, subject: str) -> InUse:
    wanted = select(Version.state, Version.hash).where(Version.subject == subject, Version.state.in_(_IN_USE))
    rows = session.execute(wanted)
    found = {row.state: row.hash for row in rows}
    return InUse(found.get(_IN_USE[0], ""), found.get(_IN_USE[1], ""))


def weights(session: Session, hash_: str) -> str:
    """The data file of a version of the ranker. Raises VersionError when it is not what was added."""
    text = session.scalar(select(Version.weights).where(Version.hash == hash_))
    if text is None or hashlib.sha256(text.encode()).hexdigest() != hash_:
        raise VersionError(f"there is no version {hash_[:12]}, or it was changed since it was added")
    return text


def promote(session: Session, subject: str, now: datetime, detail: Mapping[str, Any]) -> str:
    """The canary becomes the active version; its hash. Raises VersionError without one."""
    found = _locked(session, subject, VersionState.CANARY)
    if found is None:
        raise VersionError(f"there is no canary of the {subject} to promote")
    before = _locked(session, subject, VersionState.ACTIVE)
    if before is not None:
        _move(session, before, VersionState.RETIRED, now)
    _move(session, found, VersionState.ACTIVE, now)
    detail = {**detail, "before": before.hash if before is not None else ""}
    _log(session, subject, "promoted", found.hash, now, detail)
    return found.hash


def roll_back(session: Session, subject: str, now: datetime, detail: Mapping[str, Any]) -> str:
    """Take the canary back, or without one the active version: the one that it replaced is active again, if there is one.

    The hash of what was taken back. Raises VersionError where there is nothing to take back.
    """
    canary = _locked(session, subject, VersionState.CANARY)
    if canary is not None:
        _move(session, canary, VersionState.ROLLED_BACK, now)
        _log(session, subject, "rolled back", canary.hash, now, {**detail, "was": "canary"})
        return canary.hash
    active = _locked(session, subject, VersionState.ACTIVE)
    if active is None:
        raise VersionError(f"no version of the {subject} is in use: there is nothing to roll back")
    _move(session, active, VersionState.ROLLED_BACK, now)
    before = session.get(Version, _replaced_by(session, active.hash), with_for_update=True)
    if before is not None and before.state == VersionState.RETIRED.value:
        _move(session, before, VersionState.ACTIVE, now)
    detail = {**detail, "was": "active", "before": before.hash if before is not None else ""}
    _log(session, subject, "rolled back", active.hash, now, detail)
    return active.hash


def _replaced_by(session: Session, hash_: str) -> str:
    """What was active before the newest promotion of a version; "" for what the operator chose."""
    promotions = select(LearningEvent).where(LearningEvent.kind == "promoted", LearningEvent.hash == hash_)
    newest = session.scalars(promotions.order_by(LearningEvent.id.desc()).limit(1)).first()
    return "" if newest is None else str(newest.detail.get("before", ""))


def _locked(session: Session, subject: str, state: VersionState) -> Version | None:
    wanted = select(Version).where(Version.subject == subject, Version.state == state.value)
    return session.scalars(wanted.with_for_update()).one_or_none()


def _move(session: Session, version: Version, state: VersionState, now: datetime) -> None:
    """At once: at most one version is active, and one a canary, at each statement."""
    moved = update(Version).where(Version.hash == version.hash)
    session.execute(moved.values(state=state.value, changed_at=now))


def _log(
    session: Session, subject: str, kind: str, hash_: str, now: datetime, detail: Mapping[str, Any]
) -> None:
    session.add(LearningEvent(subject=subject, kind=kind, hash=hash_, detail=dict(detail), at=now))
