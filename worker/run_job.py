"""Runs one job, and stores its outcome."""

from __future__ import annotations

import time
import traceback
import uuid
from datetime import datetime, timezone

import structlog

from ptopt.github.errors import (
    AmbiguousError,
    ForbiddenError,
    NotFoundError,
    RateLimitedError,
    SupersededError,
    TooLargeError,
    UnavailableError,
)
from service import leases, logs
from service.jobs import load
from service.lease_renewal import LeaseRenewal
from service.leases import Claim
from worker.handlers import handler_of
from worker.job_context import JobContext, Resources, RetryLater

_log = structlog.get_logger(__name__)
# Also of a fresh token: GitHub lags behind itself, or our key is being replaced; both pass.
_UNKNOWN_TOKEN = 401
_TRACEBACK = 6_000  # characters kept, the last ones


def execute(resources: Resources, job_id: int) -> None:
    """Work on the job if it is due and nobody else does. Does not raise for what the job does wrong."""
    settings = resources.settings
    job = leases.claim(
        resources.engine,
        job_id,
        uuid.uuid4().hex,
        _now(),
        lease=settings.lease,
        max_attempts=settings.max_attempts,
    )
    if job is None:
        _log.debug("job not to be run", job=job_id)
        return
    bound = {
        "job": job.id,
        "kind": str(job.kind),
        "delivery": job.delivery,
        "repository": job.repository,
        "pull": job.pull,
    }
    with structlog.contextvars.bound_contextvars(**bound):
        _log.info("job started", head=job.head_sha, attempt=job.attempts, deferrals=job.deferrals)
        started = time.monotonic()
        with LeaseRenewal(resources.engine, job, settings.lease) as renewal:
            outcome, still_ours = _attempt(resources, job, renewal)
        if still_ours:
            _log.info("job " + outcome, seconds=round(time.monotonic() - started, 3))
        else:
            _log.warning("lease lost", would_have_been=outcome)


def _attempt(resources: Resources, job: Claim, renewal: LeaseRenewal) -> tuple[str, bool]:
    """The outcome of the job, and whether it was still ours to store."""
    engine, most = resources.engine, resources.settings.max_attempts
    try:
        payload = load(job.kind, job.payload)
        note = handler_of(job.kind)(JobContext(job, resources, renewal.check), payload)
    except SupersededError as error:
        _log.info("job not wanted", reason=str(error))
        return "superseded", leases.supersede(engine, job, _now(), note=str(error))
    except RetryLater as error:
        return "deferred", leases.defer(engine, job, _now(), seconds=error.seconds, error=str(error))
    except RateLimitedError as error:
        _log.warning("rate limited", retry_after=error.retry_after)
        return "deferred", leases.defer(engine, job, _now(), seconds=error.retry_after, error=str(error))
    except (UnavailableError, AmbiguousError) as error:
        _log.warning("GitHub is unavailable", error=str(error))
        return "deferred", leases.defer(engine, job, _now(), seconds=None, error=str(error))
    except (ForbiddenError, NotFoundError) as error:
        if error.status == _UNKNOWN_TOKEN:
            _log.error("GitHub refuses our token", error=str(error))
            return "deferred", leases.defer(engine, job, _now(), seconds=None, error=str(error))
        # Repeating does not help: the repository is gone, or the permission is missing.
        _log.warning("job impossible", error=str(error))
        return "finished", leases.finish(engine, job, _now(), note=str(error))
    except TooLargeError as error:  # such as a pull request with more than 10,000 comments
        _log.warning("job too large", error=str(error))
        return "finished", leases.finish(engine, job, _now(), note=str(error))
    except (MemoryError, RecursionError):
        # It would run into this again, and take the memory of others once more.
        _log.exception("job too large")
        return "dead", leases.fail(engine, job, _now(), max_attempts=0, error=_traceback())
    except Exception:
        _log.exception("job failed")
        outcome = "dead" if job.attempts >= most else "failed"
        return outcome, leases.fail(engine, job, _now(), max_attempts=most, error=_traceback())
    except BaseException:
        leases.release(engine, job, _now())
        raise
    return "finished", leases.finish(engine, job, _now(), note=note)


def _traceback() -> str:
    """Of the exception being handled, without secrets, for the operator."""
    cleaned = logs.clean(None, "", {"exception": traceback.format_exc()})
    return str(cleaned["exception"])[-_TRACEBACK:]


def _now() -> datetime:
    return datetime.now(timezone.utc)
