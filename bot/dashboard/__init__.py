"""The dashboard: what became of the reviews, for people who may read the repositories.

Each page is a route (`views`), a query (`queries`) and a template; `api` gives the same values as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fastapi import FastAPI
from sqlalchemy import Engine
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from bot import problems
from bot.dashboard import answers, api, signin, views
from bot.dashboard.guard import Guard
from bot.dashboard.render import PREFIX, Pages
from bot.health import Check
from service.settings import Settings


def install(app: FastAPI, settings: Settings, engine: Engine, checks: Mapping[str, Check]) -> None:
    """Serves the dashboard below `/dashboard` of `app`."""
    pages = Pages(settings)
    guard = Guard(settings, engine)
    dashboard = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    dashboard.include_router(signin.router(settings, engine, guard, pages))
    dashboard.include_router(views.router(settings, engine, guard, pages, checks))
    dashboard.include_router(api.router(settings, engine, guard, checks), prefix="/api")
    dashboard.mount("/static", StaticFiles(directory=Path(__file__).with_name("static")))
    answers.install(dashboard, pages)
    dashboard.add_middleware(problems.Unexpected)
    dashboard.add_middleware(answers.Headers)

    @app.get(PREFIX)
    @app.get(f"{PREFIX}/")
    def start() -> Response:
        return RedirectResponse(f"{pages.base}/reviews", 307)

    app.mount(PREFIX, dashboard)
