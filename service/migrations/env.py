"""Alembic's entry point. It runs in the transaction that `service.database.upgrade` opened."""

from __future__ import annotations

from alembic import context

from service.models import Base

context.configure(connection=context.config.attributes["connection"], target_metadata=Base.metadata)
context.run_migrations()
