"""Alembic's entry point. It runs in the transaction that `feedback.database.upgrade` opened."""

from __future__ import annotations

from alembic import context

from feedback.models import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
