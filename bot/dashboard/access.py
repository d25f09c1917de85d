"""Which repositories somebody sees: those that GitHub shows to the person, asked again each minute."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.exceptions import HTTPException

from bot.dashboard.sessions import Session
from ptopt.github.oauth import SeenRepository, UserClient

CACHE_SECONDS = 60.0
_SESSIONS = 1_000  # whose answer is remembered


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who is signed in, and all that may be shown: no query goes without a `scope`."""

    login: str
    csrf: str
    repositories: Mapping[int, SeenRepository]

    def scope(self, repository: int | None = None) -> tuple[int, ...]:
        """Ids of the repositories, or of this one. Raises 404 for one that the person does not see."""
        if repository is None:
            return tuple(self.repositories)
        if repository not in self.repositories:
            raise HTTPException(404)
        return (repository,)

    def writable(self) -> frozenset[int]:
        """Ids of the repositories that the person may write to."""
        return frozenset(seen.id for seen in self.repositories.values() if seen.writes)


class Access:
    """What GitHub shows to each session, for `CACHE_SECONDS`."""

    def __init__(self, github_url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._github_url = github_url
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[float, Mapping[int, SeenRepository]]] = OrderedDict()

    def of(self, session: Session) -> Viewer:
        """Raises what GitHub raises; ForbiddenError with status 401 when the session's token is over."""
        with self._lock:
            asked_at, repositories = self._known.get(session.id, (float("-inf"), {}))
        now = self._clock()
        if now - asked_at >= CACHE_SECONDS:
            client = UserClient(self._github_url, session.token)
            repositories = {each.id: each for each in client.repositories()}
            with self._lock:
                self._known[session.id] = (now, repositories)
                self._known.move_to_end(session.id)
                while len(self._known) > _SESSIONS:
                    self._known.popitem(last=False)
        return Viewer(session.login, session.csrf, repositories)

    def forget(self, session_id: str) -> None:
        with self._lock:
            self._known.pop(session_id, None)
