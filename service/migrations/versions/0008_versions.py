"""Versions of the ranker become versions of the ranker or the adapter, each with its uses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "versions",
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("weights", sa.Text(), nullable=False),
        sa.Column("card", sa.JSON(), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("changed_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("hash"),
    )
    for state in ("active", "canary"):
        where = sa.text(f"state = '{state}'")
        op.create_index(
            f"uq_versions_{state}",
            "versions",
            ["subject"],
            unique=True,
            sqlite_where=where,
            postgresql_where=where,
        )
    op.create_table(
        "version_uses",
        sa.Column("id", _KEY, autoincrement=True, nullable=False),
        sa.Column("subject", sa.String(16), nullable=False),
        sa.Column("version", sa.String(64), nullable=False),
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["repository_id"], ["repositories.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_version_uses_version_at", "version_uses", ["subject", "version", "at"])
    op.execute(
        "INSERT INTO versions (subject, hash, state, weights, card, created_at, changed_at) "
        "SELECT 'ranker', hash, state, weights, card, created_at, changed_at FROM ranker_versions"
    )
    op.execute(
        "INSERT INTO version_uses (subject, version, repository_id, failed, seconds, at) "
        "SELECT 'ranker', ranker, repository_id, failed, seconds, at FROM ranker_uses"
    )
    op.drop_table("ranker_uses")
    op.drop_table("ranker_versions")
