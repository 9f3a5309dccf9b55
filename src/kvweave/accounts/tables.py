"""The tables. What changes here needs a migration in `migrations/versions`."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
)

metadata = MetaData()

projects = Table(
    "projects",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("tenant", String(64), nullable=False, unique=True),  # salt of its cached chunks
    Column("created_at", Float, nullable=False),
)

# What a key may use. Apart from the key, so that a rotated key goes on counting where the old one
# stopped. Requests of one quota wait for each other on its row.
quotas = Table(
    "quotas",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("rpm", BigInteger),
    Column("tpm", BigInteger),
    Column("budget_tokens", BigInteger),
    Column("budget_period", String(10)),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String(16), primary_key=True),  # the public part
    Column("project_id", Integer, ForeignKey("projects.id"), nullable=False),
    Column("quota_id", Integer, ForeignKey("quotas.id"), nullable=False),
    Column("salt", LargeBinary(16), nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("models", JSON(none_as_null=True)),  # null: all
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),  # may lie in the future
    Column("replaced_by", String(16)),
)

# One row, whose number goes up with every change of a key: what servers poll.
key_changes = Table(
    "key_changes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("version", BigInteger, nullable=False),
)

# Amounts used, by the second (or the budget's period) in which they were taken.
spent = Table(
    "spent",
    metadata,
    Column("quota_id", Integer, ForeignKey("quotas.id"), primary_key=True),
    Column("limit", String(10), primary_key=True),
    Column("slot", BigInteger, primary_key=True),
    Column("amount", BigInteger, nullable=False),
)

usage = Table(
    "usage",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("time", Float, nullable=False),
    Column("project", String(100), nullable=False),
    Column("key_id", String(16)),
    Column("model", String(200), nullable=False),
    Column("provider", String(100), nullable=False),
    Column("format", String(50), nullable=False),
    Column("status", Integer, nullable=False),
    Column("error_code", String(100)),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("ttft_s", Float),
    Column("duration_s", Float, nullable=False),
)
Index("usage_by_time", usage.c.time)
Index("usage_by_project", usage.c.project, usage.c.time)
