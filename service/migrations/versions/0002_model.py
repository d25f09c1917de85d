"""Which model a review used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_COLUMNS = (
    ("model", 200),
    ("adapter", 64),
    ("prompt_version", 32),
    ("schema_version", 32),
    ("model_note", 300),
)


def upgrade() -> None:
    for name, length in _COLUMNS:
        # With a default of the database: workers of the version before may still be at work.
        op.add_column("reviews", sa.Column(name, sa.String(length), nullable=False, server_default=""))
