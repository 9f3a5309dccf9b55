"""Projects, keys, what they may use and have used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(100), nullable=False, unique=True),
        sa.Column("tenant", sa.String(64), nullable=False, unique=True),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "quotas",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("rpm", sa.BigInteger),
        sa.Column("tpm", sa.BigInteger),
        sa.Column("budget_tokens", sa.BigInteger),
        sa.Column("budget_period", sa.String(10)),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("project_id", sa.Integer, sa.ForeignKey("projects.id"), nullable=False),
        sa.Column("quota_id", sa.Integer, sa.ForeignKey("quotas.id"), nullable=False),
        sa.Column("salt", sa.LargeBinary(16), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("models", sa.JSON),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("revoked_at", sa.Float),
        sa.Column("replaced_by", sa.String(16)),
    )
    changes = op.create_table(
        "key_changes",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(changes, [{"id": 1, "version": 0}])
    op.create_table(
        "spent",
        sa.Column("quota_id", sa.Integer, sa.ForeignKey("quotas.id"), primary_key=True),
        sa.Column("limit", sa.String(10), primary_key=True),
        sa.Column("slot", sa.BigInteger, primary_key=True),
        sa.Column("amount", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "usage",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("project", sa.String(100), nullable=False),
        sa.Column("key_id", sa.String(16)),
        sa.Column("model", sa.String(200), nullable=False),
        sa.Column("provider", sa.String(100), nullable=False),
        sa.Column("format", sa.String(50), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("error_code", sa.String(100)),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("ttft_s", sa.Float),
        sa.Column("duration_s", sa.Float, nullable=False),
    )
    op.create_index("usage_by_time", "usage", ["time"])
    op.create_index("usage_by_project", "usage", ["project", "time"])
