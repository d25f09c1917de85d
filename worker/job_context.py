"""What a handler works with: the job, GitHub, the database, and whether the job is still its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from ptopt.github.app import AppClient
from ptopt.github.auth import AppAuth, for_installation
from ptopt.github.client import GitHubClient
from ptopt.github.errors import UnavailableError
from service import credentials, database, versions
from service.leases import Claim
from service.models import EndedAnalyses
from service.settings import Settings
from worker.isolation import Isolation
from worker.model_pool import ModelPool
from worker.ranker_versions import RankerVersions
from worker.retraining import RetrainingProcess

_CLIENTS = 200  # installations of which the client, with its cache, is kept
_log = structlog.get_logger(__name__)


class RetryLater(Exception):  # noqa: N818 (no error)
    """Raised by a handler whose job is to run again after `seconds`."""

    def __init__(self, seconds: float, reason: str) -> None:
        super().__init__(reason)
        self.seconds = seconds


class Clients:
    """GitHub clients of one process. The App's key is read once it is there."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings
        self._lock = threading.Lock()
        self._auth: AppAuth | None = None
        self._client = lru_cache(maxsize=_CLIENTS)(self._new_client)

    def app(self) -> AppClient:
        """Raises UnavailableError before the App is set up."""
        with self._lock:
            return AppClient(self._signed_in())

    def installation(self, installation_id: int) -> GitHubClient:
        """Raises UnavailableError before the App is set up."""
        with self._lock:
            return self._client(installation_id)

    def _new_client(self, installation_id: int) -> GitHubClient:
        return for_installation(self._signed_in(), installation_id)

    def _signed_in(self) -> AppAuth:
        if self._auth is None:
            found = credentials.load(self._engine, self._settings)
            if found is None:
                raise UnavailableError("there is no GitHub App yet: open /setup, or set PTOPT_APP_ID")
            self._auth = AppAuth(
                self._settings.github_url,
                found.app_id,
                found.private_key,
                seconds_between_writes=self._settings.seconds_between_writes,
            )
        return self._auth


class Resources:
    """What one process needs for all jobs. Made at first use, so that nothing of it crosses a fork."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def engine(self) -> Engine:
        return database.engine(self.settings.database_url)

    @cached_property
    def clients(self) -> Clients:
        return Clients(self.engine, self.settings)

    @cached_property
    def model(self) -> ModelPool:
        return ModelPool(self.settings, learned=self._adapters)

    @cached_property
    def rankers(self) -> RankerVersions:
        return RankerVersions(self.engine, self.settings.ranker_canary_share)

    @cached_property
    def isolation(self) -> Isolation:
        settings = self.settings
        return Isolation(
            seconds=settings.review_seconds,
            memory=settings.review_memory * 2**20,
            on_ended=self._count_ended,
        )

    @cached_property
    def retraining(self) -> RetrainingProcess:
        return RetrainingProcess(self.settings)

    def _adapters(self) -> versions.InUse:
        with database.reading(self.engine) as session:
            return versions.in_use(session, versions.ADAPTER)

    def _count_ended(self, reason: str) -> None:
        row = database.insert(self.engine, EndedAnalyses).values(reason=reason, number=1)
        more = {"number": EndedAnalyses.number + 1}
        try:
            with database.writing(self.engine) as session:
                session.execute(row.on_conflict_do_update(index_elements=["reason"], set_=more))
        except SQLAlchemyError:  # the review matters more
            _log.warning("an ended analysis is not counted", exc_info=True)

    def close(self) -> None:
        """Give back what was made."""
        if "retraining" in self.__dict__:
            self.retraining.stop()
        if "isolation" in self.__dict__:
            self.isolation.close()
        if "model" in self.__dict__:
            self.model.close()
        if "engine" in self.__dict__:
            self.engine.dispose()


@dataclass(frozen=True, slots=True)
class JobContext:
    """One job and the resources of its process. Call `check` before each write: it raises SupersededError."""

    job: Claim
    resources: Resources
    check: Callable[[], None]

    @property
    def github(self) -> GitHubClient:
        return self.resources.clients.installation(self.job.installation_id)

    @property
    def engine(self) -> Engine:
        return self.resources.engine

    @property
    def settings(self) -> Settings:
        return self.resources.settings
