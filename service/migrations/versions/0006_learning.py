"""What is learned from, what was learned, and what became of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    # With defaults of the database: workers of the version before may still be at work.
    op.add_column("repositories", sa.Column("learn", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("reviews", sa.Column("ranker", sa.String(64), nullable=False, server_default=""))
    op.add_column("comments", sa.Column("features", sa.JSON(), nullable=False, server_default="{}"))
    op.create_table(
        "ranker_versions",
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("weights", sa.Text(), nullable=False),
        sa.Column("card", sa.JSON(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("changed_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    for state in ("active", "canary"):
        _unique_where(f"uq_ranker_versions_{state}", "ranker_versions", "state", f"state = '{state}'")
    op.create_table(
        "ranker_uses",
        sa.Column("id", _KEY, autoincrement=True, nullable=False),
        sa.Column("ranker", sa.String(64), nullable=False),
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["repository_id"], ["repositories.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_ranker_uses_ranker_at", "ranker_uses", ["ranker", "at"])
    op.create_table(
        "retrainings",
        sa.Column("id", _KEY, autoincrement=True, nullable=False),
        sa.Column("subject", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(200), nullable=False),
        sa.Column("result", sa.String(64), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("lease_until", _TIME, nullable=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("finished_at", _TIME, nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    _unique_where("uq_retrainings_running", "retrainings", "subject", "state = 'running'")
    op.create_table(
        "learning_events",
        sa.Column("id", _KEY, autoincrement=True, nullable=False),
        sa.Column("retraining_id", _KEY, nullable=True),
        sa.Column("subject", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["retraining_id"], ["retrainings.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("retraining_id", "kind", name="uq_learning_events_step"),
    )
    op.create_index(op.f("ix_learning_events_at"), "learning_events", ["at"])


def _unique_where(name: str, table: str, column: str, where: str) -> None:
    """A unique index over some of the rows."""
    op.create_index(
        name, table, [column], unique=True, sqlite_where=sa.text(where), postgresql_where=sa.text(where)
    )
