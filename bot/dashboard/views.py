"""The pages: each asks who is there, reads, and shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

import structlog
from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Engine
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bot.dashboard.access import Viewer
from bot.dashboard.guard import Guard, check_form
from bot.dashboard.queries import health, jobs, models, reviews, rules
from bot.dashboard.render import Pages
from bot.dashboard.values import Chosen, ChosenKind, Id
from bot.health import Check, failing
from service import leases
from service.database import reading
from service.models import JobState
from service.settings import Settings

_log = structlog.get_logger(__name__)


def router(
    settings: Settings, engine: Engine, guard: Guard, pages: Pages, checks: Mapping[str, Check]
) -> APIRouter:
    routes = APIRouter()

    @routes.get("/reviews")
    def review_list(request: Request, repository: Chosen = None, before: Chosen = None) -> Response:
        viewer = guard.viewer(request)
        with reading(engine) as session:
            found = reviews.listing(session, viewer.scope(repository), before)
        return pages.show("reviews.html", viewer, listing=found, repository=repository)

    @routes.get("/reviews/{review_id}")
    def one_review(request: Request, review_id: Id) -> Response:
        viewer = guard.viewer(request)
        with reading(engine) as session:
            found = reviews.one(session, viewer.scope(), review_id)
        if found is None:
            raise HTTPException(404)
        return pages.show("review.html", viewer, page=found)

    @routes.get("/rules")
    def rule_list(request: Request, repository: Chosen = None) -> Response:
        viewer = guard.viewer(request)
        with reading(engine) as session:
            chosen = repository if repository is not None else reviews.latest(session, viewer.scope())
            found = None
            if chosen is not None:
                (chosen,) = viewer.scope(chosen)
                found = rules.page(session, chosen, datetime.now(timezone.utc))
        return pages.show("rules.html", viewer, page=found, repository=chosen)

    @routes.get("/jobs")
    def job_list(
        request: Request,
        repository: Chosen = None,
        state: JobState | None = None,
        before: Chosen = None,
        kind: ChosenKind = None,
    ) -> Response:
        viewer = guard.viewer(request)
        scope = viewer.scope(repository)
        with reading(engine) as session:
            found = jobs.listing(session, scope, viewer.writable(), state, before, kind)
            counts = jobs.counts(session, scope, kind)
            kinds = jobs.kinds(session, scope)
        return pages.show(
            "jobs.html",
            viewer,
            listing=found,
            counts=counts,
            repository=repository,
            state=state,
            kind=kind,
            kinds=kinds,
        )

    @routes.get("/jobs/{job_id}")
    def one_job(request: Request, job_id: Id) -> Response:
        viewer = guard.viewer(request)
        return pages.show("job.html", viewer, job=_job(engine, viewer, job_id))

    @routes.post("/jobs/{job_id}/retry")
    async def retry(request: Request, job_id: Id) -> Response:
        form = await guard.form(request)
        await run_in_threadpool(_retry, engine, guard, request, form, job_id)
        return RedirectResponse(f"{pages.base}/jobs/{job_id}", 303)

    @routes.get("/models")
    def model_list(request: Request) -> Response:
        viewer = guard.viewer(request)
        with reading(engine) as session:
            found = models.page(
                session, viewer.scope(), settings.model_registry, settings.ranker_weights is not None
            )
        return pages.show("models.html", viewer, page=found)

    @routes.get("/health")
    def health_page(request: Request) -> Response:
        viewer = guard.viewer(request)
        bad, now = failing(checks), datetime.now(timezone.utc)
        with reading(engine) as session:
            found = health.page(session, viewer.scope(), list(checks), bad, now)
        return pages.show("health.html", viewer, page=found)

    return routes


def _job(engine: Engine, viewer: Viewer, job_id: int) -> jobs.JobLine:
    """Raises 404."""
    with reading(engine) as session:
        found = jobs.one(session, viewer.scope(), viewer.writable(), job_id)
    if found is None:
        raise HTTPException(404)
    return found


def _retry(engine: Engine, guard: Guard, request: Request, form: dict[str, str], job_id: int) -> None:
    """Raises 403 for people who may not write to the repository, 409 for a job that is not dead."""
    viewer = guard.viewer(request)
    check_form(form, viewer.csrf)
    job = _job(engine, viewer, job_id)
    if job.repository_id not in viewer.writable():
        raise HTTPException(403, "Only people with write access to the repository may retry its jobs.")
    if not leases.retry(engine, job_id, datetime.now(timezone.utc)):
        raise HTTPException(409, "This job is not dead any more.")
    _log.info("job retried", job=job_id, login=viewer.login)
