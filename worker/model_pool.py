"""The model of a worker process. It follows the registry, and what retrainings made of it: a promotion takes effect without a
restart.

One thread opens and closes models, so that no job waits for a newer one while an older serves. A job keeps the model it
began with; a model that is not wanted any more is closed when its last job is over. A model that cannot be had
stops no review: it goes out from the rules, and says so.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from ptopt.model.adapter_folder import RegistryError
from ptopt.model.advisor import Advisor
from ptopt.model.registry import CHALLENGER, CHAMPION, Registry
from service.settings import Settings
from service.versions import InUse
from worker.model_loading import Model, away, open_model

_LOOK = 1.0  # seconds between two looks at the aliases
_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 300.0  # seconds, after a model could not be opened
_KEEP = 10.0  # seconds between two looks at whether what serves still can
_LOADING = "the model is still being loaded"
_FAILED = "the model could not be loaded"
_log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class _Held:
    """An open model, and how many jobs use it."""

    key: str
    model: Model
    users: int = 0
    unwanted: float | None = None  # since when


@dataclass(slots=True)
class _Pause:
    tries: int = 0
    until: float = 0.0


@dataclass(slots=True)
class _State:
    """Shared by the thread and the jobs, under the pool's lock."""

    wanted: dict[str, str] | None = None  # alias -> key; None before the first look that succeeded
    unreadable: str = ""  # why the last look did not
    serving: dict[str, _Held] = field(default_factory=dict)  # alias -> what jobs get
    held: list[_Held] = field(default_factory=list)  # all that are open
    paused: dict[str, _Pause] = field(default_factory=dict)  # key -> after a failure
    closed: bool = False


class ModelPool:
    """The models of this process. Nothing is loaded, and no thread started, before the first review needs one.

    `opener` opens the model in a folder or of a name, with the hash that the registry knows it by, or "". `learned`: the
    adapters of retrainings that are in use, in place of what the registry's aliases stand for.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        opener: Callable[[Settings, str, str], Model] = open_model,
        learned: Callable[[], InUse] = InUse,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._open = opener
        self._learned = learned
        self._clock = clock
        # vLLM takes the whole of a GPU: one at a time, and no challenger.
        self._alone = settings.model_server is None and settings.model_engine == "vllm"
        self._registry = Registry(settings.model_registry) if settings.model_registry else None
        self._changed = threading.Condition()
        self._state = _State()
        self._thread: threading.Thread | None = None
        self._kept = clock()

    @contextmanager
    def advisor_for(self, repository: str) -> Iterator[Advisor | None]:
        """The model for a review in this repository, which stays open until the end of the block.

        None when there is to be none. One that cannot be had in time is an advisor that says so.
        """
        if self._registry is None and not self._settings.model:
            yield None
            return
        deadline = self._clock() + self._settings.model_seconds
        aliases = self._aliases(repository)
        held, why = self._borrow(aliases, deadline)
        try:
            if held is not None:
                yield held.model.advisor(max(0.0, deadline - self._clock()))
            elif why:
                yield self._away(aliases, why)
            else:
                yield None
        finally:
            if held is not None:
                with self._changed:
                    held.users -= 1
                    if held not in self._state.serving.values():
                        self._changed.notify_all()  # it may be closed now

    def close(self) -> None:
        """Close all models; those in use, too: the process ends."""
        with self._changed:
            self._state.closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(5.0)  # it may be in the middle of loading
        with self._changed:
            left, self._state.held = self._state.held, []
        for held in left:
            held.model.close()

    def _aliases(self, repository: str) -> tuple[str, ...]:
        """In which order to look for a model. A repository that has the challenger keeps it when the share grows."""
        digest = hashlib.sha256(f"challenger\0{repository}".encode()).digest()
        share = int.from_bytes(digest[:8], "big") / 2**64
        return (CHALLENGER, CHAMPION) if share < self._settings.model_challenger_share else (CHAMPION,)

    def _away(self, aliases: tuple[str, ...], why: str) -> Advisor:
        """No path of ours stands in a review."""
        if self._registry is None:
            return away(Path(self._settings.model).name, "", why)
        wanted = self._state.wanted or {}
        alias = next((alias for alias in aliases if alias in wanted), CHAMPION)
        return away(alias, wanted.get(alias, ""), why)

    def _borrow(self, aliases: tuple[str, ...], deadline: float) -> tuple[_Held | None, str]:
        """What serves, or why nothing does: "" when nothing is to. Waits for a first model until the deadline."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="model", daemon=True)
                self._thread.start()
            while True:
                for alias in aliases:
                    if alias in self._state.serving:
                        held = self._state.serving[alias]
                        held.users += 1
                        return held, ""
                wanted = self._state.wanted
                if self._state.unreadable:
                    return None, _FAILED
                if wanted is not None:
                    keys = [wanted[alias] for alias in aliases if alias in wanted]
                    if all(key in self._state.paused for key in keys):
                        return None, _FAILED if keys else ""
                left = deadline - self._clock()
                if left <= 0:
                    return None, _LOADING
                self._changed.wait(left)

    def _follow(self) -> None:
        while True:
            try:
                more = self._step()
            except Exception:
                more = False
                _log.exception("the model pool failed")
            with self._changed:
                if not more and not self._state.closed:
                    self._changed.wait(_LOOK)
                if self._state.closed:
                    return

    def _step(self) -> bool:
        """Serve what is wanted and open, close what nobody needs, and open one that is missing.

        Returns whether there may be more to do at once.
        """
        wanted = self._targets()
        state = self._state
        with self._changed:
            if wanted is None:
                wanted = state.wanted or {}
            else:
                state.wanted = wanted
            open_ = {held.key: held for held in state.held}
            if self._alone and wanted.get(CHAMPION) not in open_ and self._is_time(wanted.get(CHAMPION, "")):
                state.serving.clear()
            for alias in (CHAMPION, CHALLENGER):
                key = wanted.get(alias)
                if key is None:
                    state.serving.pop(alias, None)
                elif key in open_ and state.serving.get(alias) is not open_[key]:
                    state.serving[alias] = open_[key]
                    _log.info("model serves", alias=alias, model=key)
            for key in state.paused.keys() - wanted.values():
                del state.paused[key]
            serving = list(dict.fromkeys(state.serving.values()))
            unneeded = [held for held in state.held if self._is_unneeded(held)]
            state.held = [held for held in state.held if held not in unneeded]
            self._changed.notify_all()
        for held in unneeded:
            self._retire(held)
        if self._clock() >= self._kept + _KEEP:
            self._kept = self._clock()
            for held in serving:
                self._keep(held)
        missing = [key for key in wanted.values() if key not in open_ and self._is_time(key)]
        if missing and not (self._alone and state.held):
            self._load(missing[0])
            return True
        return bool(unneeded)

    def _targets(self) -> dict[str, str] | None:
        """The key of each alias that stands for something; None when that cannot be read now."""
        if self._registry is None:
            return {CHAMPION: self._settings.model}
        try:
            if not self._registry.folder.is_dir():
                raise RegistryError(f"there is no folder {self._registry.folder}")
            aliases = (CHAMPION,) if self._alone else (CHAMPION, CHALLENGER)
            found = {alias: self._registry.target(alias) for alias in aliases}
            learned = self._learned()
        except (RegistryError, OSError, SQLAlchemyError) as error:
            if self._state.unreadable != str(error):
                _log.error("the registry cannot be read", error=str(error))
            self._state.unreadable = str(error)
            return None
        self._state.unreadable = ""
        ours = {CHAMPION: learned.active, CHALLENGER: learned.canary}
        wanted = {alias: ours[alias] or key for alias, key in found.items()}
        return {alias: key for alias, key in wanted.items() if key is not None}

    def _is_unneeded(self, held: _Held) -> bool:
        if held.users or held in self._state.serving.values():
            held.unwanted = None
            return False
        if held.unwanted is None:
            held.unwanted = self._clock()
        return self._clock() - held.unwanted >= held.model.linger

    def _is_time(self, key: str) -> bool:
        pause = self._state.paused.get(key)
        return pause is None or pause.until <= self._clock()

    def _load(self, key: str) -> None:
        started = self._clock()
        try:
            if self._registry is None:
                model = self._open(self._settings, key, "")
            else:
                model = self._open(self._settings, str(self._registry.verified(key)), key)
        except Exception as error:
            with self._changed:
                pause = self._state.paused.setdefault(key, _Pause())
                seconds = min(_FIRST_PAUSE * 2.0**pause.tries, _LONGEST_PAUSE)
                pause.tries, pause.until = pause.tries + 1, self._clock() + seconds
                self._changed.notify_all()
            _log.error("model not opened", model=key, error=str(error), again_in=seconds, exc_info=True)
            return
        _log.info("model opened", model=key, seconds=round(self._clock() - started, 1))
        with self._changed:
            self._state.paused.pop(key, None)
            if not self._state.closed:
                self._state.held.append(_Held(key, model))
                return
        model.close()  # it came too late

    def _keep(self, held: _Held) -> None:
        try:
            held.model.keep()
        except Exception as error:  # reviews say so, too
            _log.warning("model does not serve", model=held.key, error=str(error))

    def _retire(self, held: _Held) -> None:
        try:
            held.model.retire()
        except Exception:
            _log.exception("model not closed", model=held.key)
        else:
            _log.info("model closed", model=held.key)
