"""What the usage log says: totals by project and model, and every request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, case, func, select

from kvweave.accounts.database import Database
from kvweave.accounts.tables import usage
from kvweave.accounts.usage_record import UsageRecord

_CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """What one project used of one model.

    Attributes:
        errors: how many of the requests failed; clients that hung up count.
        cached_tokens: how many of the prompts' tokens came from a cache.
        ttft_p50_s, ttft_p95_s: median and 95th percentile of the times to first token; None if no
            request had one.
    """

    project: str
    model: str
    requests: int
    errors: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None


class UsageReader:
    """Reads the usage log of a database.

    Args:
        project: only what this one used.
        since: only requests that came at this time or later, in seconds since the epoch.
    """

    def __init__(
        self, database: Database, *, project: str | None = None, since: float | None = None
    ) -> None:
        self._database = database
        self._where: list[ColumnElement[bool]] = []
        if project is not None:
            self._where.append(usage.c.project == project)
        if since is not None:
            self._where.append(usage.c.time >= since)

    def totals(self) -> list[UsageTotal]:
        """By project and model, in the order of their names."""
        group = (usage.c.project, usage.c.model)
        sums = (
            select(
                *group,
                func.count().label("requests"),
                func.sum(case((usage.c.status >= 400, 1), else_=0)).label("errors"),
                func.sum(usage.c.prompt_tokens).label("prompt_tokens"),
                func.sum(usage.c.cached_tokens).label("cached_tokens"),
                func.sum(usage.c.completion_tokens).label("completion_tokens"),
            )
            .where(*self._where)
            .group_by(*group)
            .subquery()
        )
        # SQLite has no percentiles, but the share of a group's times that are not longer.
        ranked = (
            select(
                *group,
                usage.c.ttft_s,
                func.cume_dist().over(partition_by=group, order_by=usage.c.ttft_s).label("share"),
            )
            .where(*self._where, usage.c.ttft_s.is_not(None))
            .subquery()
        )

        def percentile(share: float) -> ColumnElement[Any]:
            return func.min(case((ranked.c.share >= share, ranked.c.ttft_s)))

        times = (
            select(
                ranked.c.project,
                ranked.c.model,
                percentile(0.5).label("ttft_p50_s"),
                percentile(0.95).label("ttft_p95_s"),
            )
            .group_by(ranked.c.project, ranked.c.model)
            .subquery()
        )
        same = (times.c.project == sums.c.project) & (times.c.model == sums.c.model)
        query = (
            select(sums, times.c.ttft_p50_s, times.c.ttft_p95_s)
            .select_from(sums.outerjoin(times, same))
            .order_by(sums.c.project, sums.c.model)
        )
        with self._database.read() as connection:
            return [
                UsageTotal(
                    project=row.project,
                    model=row.model,
                    requests=row.requests,
                    errors=int(row.errors),
                    prompt_tokens=int(row.prompt_tokens),  # PostgreSQL sums to decimals
                    cached_tokens=int(row.cached_tokens),
                    completion_tokens=int(row.completion_tokens),
                    ttft_p50_s=row.ttft_p50_s,
                    ttft_p95_s=row.ttft_p95_s,
                )
                for row in connection.execute(query)
            ]

    def records(self) -> Iterator[UsageRecord]:
        """Every request, the oldest first."""
        names = [field.name for field in fields(UsageRecord)]
        query = (
            select(*(usage.c[name] for name in names))
            .where(*self._where)
            .order_by(usage.c.time, usage.c.id)
            .execution_options(yield_per=_CHUNK)
        )
        with self._database.read() as connection:
            for row in connection.execute(query):
                yield UsageRecord(*row)
