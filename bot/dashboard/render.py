"""Pages from templates. Every value is escaped; no page has a script or a style of its own."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from bot.dashboard import words
from bot.dashboard.access import Viewer
from ptopt.address import rule_page
from ptopt.github.endpoint import Endpoint
from ptopt.report.text import one_line
from service import jobs
from service.settings import Settings

PREFIX = "/dashboard"


class Pages:
    def __init__(self, settings: Settings) -> None:
        # The proxy may serve us below a path of its own.
        self.base = urlsplit(settings.public_url).path + PREFIX
        self._environment = Environment(
            loader=PackageLoader("bot.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(
            base=self.base, web=Endpoint.of(settings.github_url).web, rule_page=rule_page, query=_query
        )
        self._environment.filters.update(
            time=_time,
            moment=_moment,
            line=one_line,
            signal=words.signal,
            reason=words.reason,
            job=jobs.words,
            learned_from=words.learned_from,
        )

    def show(
        self, template: str, viewer: Viewer | None = None, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """The page; without a `viewer` it has neither menu nor sign-out."""
        text = self._environment.get_template(template).render(viewer=viewer, **values)
        return HTMLResponse(text, status)


def _query(**values: object) -> str:
    """`?…` of the values that are set; "" without any."""
    given = {name: value for name, value in values.items() if value not in (None, "")}
    return f"?{urlencode(given)}" if given else ""


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="seconds")
