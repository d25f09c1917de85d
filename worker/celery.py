"""Where `celery -A worker worker -Q review,command,feedback` finds the application."""

from __future__ import annotations

import sys

import click

from service.allocator import return_freed_memory
from service.environment import read_settings
from worker.app import make_app
from worker.review_records import hash_key

return_freed_memory()
try:
    _settings = read_settings()
    hash_key(_settings)  # a worker without it would fail after it has posted
    app = make_app(_settings)
except click.ClickException as error:  # Celery would show where it was raised, which helps nobody
    sys.exit(f"Error: {error.message}")
except ValueError as error:
    sys.exit(f"Error: {error}")
