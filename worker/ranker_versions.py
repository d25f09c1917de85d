"""The ranker of a review: the version that the database gives to its repository, at this moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import structlog
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from ptopt.ranker.model import Ranker, call_with, read, using
from ptopt.runner import Runner
from service import versions
from service.database import reading

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


class RankerVersions:
    """The versions of one process. Which one is wanted is read at each review, its weights once."""

    def __init__(self, engine: Engine, share: float) -> None:
        self._engine, self._share = engine, share
        self._known: dict[str, _Loaded | None] = {}

    def of(self, repository_id: int) -> Choice:
        """What ranks in the repository. A version that cannot be read stops no review."""
        with reading(self._engine) as session:
            wanted = versions.in_use(session, versions.RANKER).of(repository_id, self._share)
            if not wanted:
                return Choice("", None)
            if wanted not in self._known:
                while len(self._known) >= _KEPT:
                    self._known.pop(next(iter(self._known)), None)
                self._known[wanted] = _load(session, wanted)
        # By its own name even then: what it does wrong counts against it.
        loaded = self._known.get(wanted)
        return Choice(wanted, loaded, unreadable=loaded is None)


def _load(session: Session, wanted: str) -> _Loaded | None:
    try:
        text = versions.weights(session, wanted)
        return _Loaded(text, read(text))
    except (versions.VersionError, ValueError, LookupError, TypeError, AttributeError) as error:
        _log.error("a version of the ranker cannot be read", version=wanted[:12], error=str(error))
        return None
