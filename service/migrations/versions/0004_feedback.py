"""What feedback needs to know of a comment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # With defaults of the database: workers of the version before may still be at work.
    op.add_column("comments", sa.Column("score", sa.Double(), nullable=True))
    op.add_column("comments", sa.Column("explored", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("comments", sa.Column("author", sa.String(64), nullable=False, server_default=""))
