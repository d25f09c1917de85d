"""Since when nothing happened about the comments of a pull request that is polled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # Workers of the version before may still add rows: without it, the next poll sets it.
    op.add_column("polled_pulls", sa.Column("active_at", sa.DateTime(timezone=True), nullable=True))
