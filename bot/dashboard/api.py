"""What the pages show, as JSON. It only reads, and takes the cookie of a session."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from fastapi import APIRouter
from fastapi.encoders import jsonable_encoder
from sqlalchemy import Engine
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bot.dashboard.guard import Guard
from bot.dashboard.queries import health, jobs, models, reviews, rules
from bot.dashboard.values import Chosen, ChosenKind, Id
from bot.health import Check, failing
from service.database import reading
from service.models import JobState
from service.settings import Settings


def router(settings: Settings, engine: Engine, guard: Guard, checks: Mapping[str, Check]) -> APIRouter:
    routes = APIRouter()

    @routes.get("/repositories")
    def repository_list(request: Request) -> Response:
        return _json(list(guard.viewer(request).repositories.values()))

    @routes.get("/reviews")
    def review_list(request: Request, repository: Chosen = None, before: Chosen = None) -> Response:
        scope = guard.viewer(request).scope(repository)
        with reading(engine) as session:
            return _json(reviews.listing(session, scope, before))

    @routes.get("/reviews/{review_id}")
    def one_review(request: Request, review_id: Id) -> Response:
        scope = guard.viewer(request).scope()
        with reading(engine) as session:
            return _json(reviews.one(session, scope, review_id))

    @routes.get("/repositories/{repository_id}/rules")
    def rule_list(request: Request, repository_id: Id) -> Response:
        (repository,) = guard.viewer(request).scope(repository_id)
        with reading(engine) as session:
            return _json(rules.page(session, repository, datetime.now(timezone.utc)))

    @routes.get("/jobs")
    def job_list(
        request: Request,
        repository: Chosen = None,
        state: JobState | None = None,
        before: Chosen = None,
        kind: ChosenKind = None,
    ) -> Response:
        viewer = guard.viewer(request)
        with reading(engine) as session:
            scope = viewer.scope(repository)
            return _json(jobs.listing(session, scope, viewer.writable(), state, before, kind))

    @routes.get("/jobs/{job_id}")
    def one_job(request: Request, job_id: Id) -> Response:
        viewer = guard.viewer(request)
        with reading(engine) as session:
            return _json(jobs.one(session, viewer.scope(), viewer.writable(), job_id))

    @routes.get("/models")
    def model_list(request: Request) -> Response:
        scope = guard.viewer(request).scope()
        with reading(engine) as session:
            custom = settings.ranker_weights is not None
            return _json(models.page(session, scope, settings.model_registry, custom))

    @routes.get("/health")
    def health_page(request: Request) -> Response:
        scope = guard.viewer(request).scope()
        bad, now = failing(checks), datetime.now(timezone.utc)
        with reading(engine) as session:
            return _json(health.page(session, scope, list(checks), bad, now))

    return routes


def _json(value: object) -> Response:
    """Raises 404 for what was not found."""
    if value is None:
        raise HTTPException(404)
    return JSONResponse(jsonable_encoder(value))
