"""Where `celery -A worker worker -Q review,command,feedback` finds the application."""

from __future__ import annotations

from bot.settings import settings
from worker.app import make_app

app = make_app(settings())
