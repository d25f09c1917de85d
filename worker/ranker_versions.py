"""The ranker of a review: the version that the database gives to its repository, at this moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import ParamSpec, TypeVar

import structlog
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from ptopt.findings import Review
from ptopt.github.errors import GitHubError, SupersededError
from ptopt.ranker.model import Ranker, call_with, read, using
from ptopt.runner import Runner
from service import rankers
from service.database import reading, writing
from service.models import RankerUse, Repository
from worker.isolation import REASONS

P = ParamSpec("P")
T = TypeVar("T")

_KEPT = 8  # versions of which the weights are kept in memory
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Loaded:
    text: str
    ranker: Ranker


@dataclass(frozen=True, slots=True)
class Choice:
    """The ranker of one repository; `hash` is "" for the one that ptopt carries, or PTOPT_RANKER_WEIGHTS names."""

    hash: str
    loaded: _Loaded | None
    unreadable: bool = False  # a version was to rank, and cannot be read: the one that ptopt carries did

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within the block it ranks, in this thread."""
        with using(self.loaded.ranker if self.loaded is not None else None):
            yield

    def runner(self, runner: Runner) -> Runner:
        """The same runner, where this ranks."""
        return runner if self.loaded is None else _With(self.loaded.text, runner)


class _With:
    def __init__(self, text: str, runner: Runner) -> None:
        self._text, self._runner = text, runner

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._runner(call_with, self._text, function, *args, **kwargs)


@dataclass(slots=True)
class Use:
    """A try to review a pull request."""

    failed: bool
    done: bool = False

    def reviewed(self, review: Review | None) -> None:
        """What came out of it; None where nothing was looked at. A file whose analysis had to be ended is a failure."""
        self.done = review is not None
        if review is not None:
            self.failed |= any(note.reason in REASONS for note in review.not_reviewed)


class RankerVersions:
    """The versions of one process. Which one is wanted is read at each review, its weights once."""

    def __init__(self, engine: Engine, share: float) -> None:
        self._engine, self._share = engine, share
        self._known: dict[str, _Loaded | None] = {}

    def of(self, repository_id: int) -> Choice:
        """What ranks in the repository. A version that cannot be read stops no review."""
        with reading(self._engine) as session:
            wanted = rankers.in_use(session).of(repository_id, self._share)
            if not wanted:
                return Choice("", None)
            if wanted not in self._known:
                while len(self._known) >= _KEPT:
                    self._known.pop(next(iter(self._known)), None)
                self._known[wanted] = _load(session, wanted)
        # By its own name even then: what it does wrong counts against it.
        loaded = self._known.get(wanted)
        return Choice(wanted, loaded, unreadable=loaded is None)

    @contextmanager
    def recorded(self, choice: Choice, repository_id: int) -> Iterator[Use]:
        """Around a review: record how long it took, and whether it failed.

        What GitHub does wrong, and what is not reviewed, is no use of a ranker.
        """
        use = Use(failed=choice.unreadable)
        started = time.monotonic()
        try:
            yield use
        except (GitHubError, SupersededError):
            raise
        except Exception:
            use.done = use.failed = True
            raise
        finally:
            if use.done:
                self._record(choice.hash, repository_id, use.failed, time.monotonic() - started)

    def _record(self, version: str, repository_id: int, failed: bool, seconds: float) -> None:
        now = datetime.now(timezone.utc)
        try:
            with writing(self._engine) as session:
                if session.scalar(select(Repository.id).where(Repository.id == repository_id)) is None:
                    return  # the App was removed, or has not reviewed anything there yet
                use = {"ranker": version, "repository_id": repository_id, "failed": failed}
                session.add(RankerUse(**use, seconds=round(seconds, 3), at=now))
        except SQLAlchemyError:  # the review matters more
            _log.warning("the use of a ranker is not recorded", exc_info=True)


def _load(session: Session, wanted: str) -> _Loaded | None:
    try:
        text = rankers.weights(session, wanted)
        return _Loaded(text, read(text))
    except (rankers.RankerError, ValueError, LookupError, TypeError, AttributeError) as error:
        _log.error("a version of the ranker cannot be read", version=wanted[:12], error=str(error))
        return None
