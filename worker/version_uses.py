"""What a review was made with, how long it took, and whether it failed: what a trial of a version looks at."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone

import structlog
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from ptopt.findings import Review
from ptopt.github.errors import GitHubError, SupersededError
from service.database import writing
from service.models import Repository, VersionUse
from service.versions import ADAPTER
from worker.isolation import REASONS

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Use:
    """A try to review a pull request, with the subjects whose version failed in it."""

    failed: set[str] = field(default_factory=set)
    done: bool = False

    def reviewed(self, review: Review | None, subjects: Mapping[str, str]) -> None:
        """What came out of it; None where nothing was looked at.

        A file whose analysis had to be ended is a failure of all, a model that did not answer one of the adapter.
        """
        self.done = review is not None
        if review is None:
            return
        if any(note.reason in REASONS for note in review.not_reviewed):
            self.failed.update(subjects)
        if review.model is not None and review.model.note:
            self.failed.add(ADAPTER)


@contextmanager
def recorded(engine: Engine, repository_id: int, versions: Mapping[str, str]) -> Iterator[Use]:
    """Around a review with these versions, by subject: record how long it took, and what failed.

    What GitHub does wrong, and what is not reviewed, is no use of a version.
    """
    use = Use()
    started = time.monotonic()
    try:
        yield use
    except (GitHubError, SupersededError):
        raise
    except Exception:
        use.done = True
        use.failed.update(versions)
        raise
    finally:
        if use.done:
            _record(engine, repository_id, versions, use.failed, time.monotonic() - started)


def _record(
    engine: Engine, repository_id: int, versions: Mapping[str, str], failed: set[str], seconds: float
) -> None:
    now = datetime.now(timezone.utc)
    try:
        with writing(engine) as session:
            if session.scalar(select(Repository.id).where(Repository.id == repository_id)) is None:
                return  # the App was removed, or has not reviewed anything there yet
            of_review = {"repository_id": repository_id, "seconds": round(seconds, 3), "at": now}
            for subject, version in versions.items():
                row = {"subject": subject, "version": version, "failed": subject in failed}
                session.add(VersionUse(**row, **of_review))
    except SQLAlchemyError:  # the review matters more
        _log.warning("the use of a version is not recorded", exc_info=True)
