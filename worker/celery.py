"""Where `celery -A worker worker -Q review,command,feedback` finds the application."""

from __future__ import annotations

import sys

import click

from bot.__main__ import read_settings
from worker.app import make_app

try:
    app = make_app(read_settings())
except click.ClickException as error:  # Celery would show where it was raised, which helps nobody
    sys.exit(f"Error: {error.message}")
