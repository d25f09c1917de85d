"""The web application: the webhook, `/setup`, the dashboard, health and metrics. Run by `python -m bot`, or by `embedded.service`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timezone

from celery import Celery
from fastapi import FastAPI
from sqlalchemy import Engine
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bot import dashboard, events, health, problems, setup
from bot.body import BodyReader
from bot.health import Check
from bot.metrics import CONTENT_TYPE, Metrics
from bot.peers import Peers
from bot.webhook import PATH, Webhook
from service import broker, database
from service.credentials import WebhookSecrets
from service.dispatch import Dispatcher, publish_due
from service.inbox import Inbox
from service.settings import Settings


class _App(FastAPI):
    """Hands deliveries to the webhook, ahead of all middleware and routing."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH:
            await self.state.deliver(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def create_app(
    settings: Settings,
    *,
    engine: Engine | None = None,
    celery: Celery | None = None,
    checks: Mapping[str, Check] | None = None,
) -> FastAPI:
    """The application. `checks` are more things that must be well for `/readyz`.

    `engine` and `celery` are for a process that has its own; else they are made from the settings. The schema of the
    database must be there: nothing is migrated here.
    """
    own_engine = engine is None
    engine = engine or database.engine(settings.database_url)
    sender = celery or broker.publisher(settings)
    entries = events.load()
    metrics = Metrics(engine, entries)
    secrets = WebhookSecrets(engine, settings)
    dispatcher = Dispatcher(
        lambda: publish_due(engine, sender, datetime.now(timezone.utc), settings.jobs_per_installation)
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        inbox = Inbox(engine, on_due=dispatcher.wake)
        app.state.inbox = inbox
        reader = BodyReader(peers=app.state.peers)
        webhook = Webhook(inbox, secrets, entries, metrics, debounce=settings.debounce, reader=reader)
        app.state.deliver = problems.Unexpected(webhook)
        dispatcher.start()
        try:
            yield
        finally:
            inbox.close()
            dispatcher.stop()
            if own_engine:
                engine.dispose()

    app = _App(
        title="ptopt",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.peers = Peers(settings.proxies)
    problems.install(app)

    def inbox_lives() -> None:
        if not app.state.inbox.alive():
            raise RuntimeError("the thread that stores deliveries has ended")

    app.include_router(setup.router(settings, engine))
    all_checks: dict[str, Check] = {
        "database": lambda: database.check(engine),
        "inbox": inbox_lives,
        "dispatcher": dispatcher.check,
        **(checks or {}),
    }
    degrading: dict[str, Check] = {"broker": dispatcher.check_broker}
    app.include_router(health.router(all_checks, degrading))
    if settings.dashboard:
        dashboard.install(app, settings, engine, {**all_checks, **degrading})

    @app.get("/metrics")
    def scrape() -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    return app
