"""How much each quota has used, in the database: the part of limits that all processes share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from kvweave.accounts.database import Database
from kvweave.accounts.keystore import Period, Quota
from kvweave.accounts.tables import quotas, spent

Limit = Literal["rpm", "tpm", "budget"]

LEASE_S = 1.0
"""How long a process may use what it has taken before it must give it back."""

# What is used within a second lies in one slot, and may have been taken a lease earlier: counting
# two seconds more than a minute, no minute ever sees more than the limit.
_WINDOW_S = 60 + 1 + int(LEASE_S)


@dataclass(frozen=True, slots=True)
class Taken:
    """An amount of one limit that was taken from a quota, and the slot it counts in."""

    limit: Limit
    slot: int
    amount: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why nothing was taken.

    Attributes:
        allowed, used: of the limit.
        wait_s: seconds until enough is free, if nobody takes it; None if that can never be.
    """

    limit: Limit
    needed: int
    allowed: int
    used: int
    wait_s: float | None


def limits_of(quota: Quota) -> dict[Limit, int]:
    """The limits that a quota has."""
    found: dict[Limit, int | None] = {
        "rpm": quota.rpm,
        "tpm": quota.tpm,
        "budget": quota.budget_tokens,
    }
    return {limit: allowed for limit, allowed in found.items() if allowed is not None}


def slot_of(limit: Limit, quota: Quota, now: float) -> int:
    """The slot in which an amount taken at `now` counts: a second, or the start of a period."""
    return period_start(quota.budget_period, now) if limit == "budget" else int(now)


class SpentStore:
    """Takes amounts from quotas, and corrects them. Thread-safe, and across processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(
        self,
        quota: Quota,
        needs: Mapping[Limit, int],
        extra: Mapping[Limit, int],
        corrections: Mapping[tuple[Limit, int], int],
        now: float | None = None,
    ) -> list[Taken] | Shortage:
        """Take at least `needs`, of all limits or of none; of what is left beside, up to `extra`.

        `corrections` (see `correct`) are made first, in the same transaction.
        """
        now = time.time() if now is None else now
        with self._database.write() as connection:
            _wait_for_turn(connection, quota.id)
            _correct(connection, quota.id, corrections)
            used = _used(connection, quota, now)
            taken = []
            for limit, needed in needs.items():
                allowed = limits_of(quota)[limit]
                left = allowed - sum(used[limit].values())
                if needed > left:
                    return _shortage(limit, needed, allowed, used[limit], quota, now)
                # Near the limit nobody takes more than it needs: it may be needed elsewhere.
                amount = needed + max(0, min(extra.get(limit, 0), (left - needed) // 4))
                taken.append(Taken(limit, slot_of(limit, quota, now), amount))
            for part in taken:
                _add(connection, quota.id, part)
            _forget_old(connection, quota.id, now)
            return taken

    def correct(self, corrections: Mapping[int, Mapping[tuple[Limit, int], int]]) -> None:
        """Change what was used: by quota, limit and slot, the amount to add (or to take off)."""
        with self._database.write() as connection:
            for quota_id, changes in sorted(corrections.items()):
                _wait_for_turn(connection, quota_id)
                _correct(connection, quota_id, changes)

    def used(self, quota: Quota, now: float | None = None) -> dict[Limit, int]:
        """What counts at this moment, for each limit of the quota."""
        now = time.time() if now is None else now
        with self._database.read() as connection:
            return {limit: sum(a.values()) for limit, a in _used(connection, quota, now).items()}


def period_start(period: Period, now: float) -> int:
    """When the calendar period (UTC) that `now` lies in began."""
    moment = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return int((moment.replace(day=1) if period == "month" else moment).timestamp())


def period_end(period: Period, now: float) -> int:
    """When the next one begins."""
    start = datetime.fromtimestamp(period_start(period, now), UTC)
    after = start + timedelta(days=32 if period == "month" else 1)
    return int((after.replace(day=1) if period == "month" else after).timestamp())


def _wait_for_turn(connection: Connection, quota_id: int) -> None:
    """Until this transaction ends, nobody else changes what the quota has used.

    On SQLite that is so anyway: it has one writer.
    """
    connection.execute(select(quotas.c.id).where(quotas.c.id == quota_id).with_for_update())


def _used(connection: Connection, quota: Quota, now: float) -> dict[Limit, dict[int, int]]:
    """Amount by slot, of every limit, as far as it counts now."""
    begins: dict[Limit, int] = {"rpm": int(now) - _WINDOW_S, "tpm": int(now) - _WINDOW_S}
    begins["budget"] = period_start(quota.budget_period, now)
    query = select(spent.c.limit, spent.c.slot, spent.c.amount).where(
        spent.c.quota_id == quota.id, spent.c.slot >= min(begins.values())
    )
    found: dict[Limit, dict[int, int]] = {limit: {} for limit in limits_of(quota)}
    for limit, slot, amount in connection.execute(query):
        if limit in found and slot > begins[limit] - (limit == "budget"):
            found[limit][slot] = amount
    return found


def _shortage(
    limit: Limit, needed: int, allowed: int, used: Mapping[int, int], quota: Quota, now: float
) -> Shortage:
    total = sum(used.values())
    wait: float | None = None
    if needed <= allowed:
        if limit == "budget":
            wait = period_end(quota.budget_period, now) - now
        else:
            left, wait = allowed - total, float(_WINDOW_S)
            for slot, amount in sorted(used.items()):
                left += amount
                if left >= needed:
                    wait = slot + _WINDOW_S - now
                    break
    return Shortage(limit, needed, allowed, total, wait)


def _add(connection: Connection, quota_id: int, part: Taken) -> None:
    values = {
        "quota_id": quota_id,
        "limit": part.limit,
        "slot": part.slot,
        "amount": part.amount,
    }
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(spent).values(values)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[spent.c.quota_id, spent.c.limit, spent.c.slot],
            set_={"amount": spent.c.amount + statement.excluded.amount},
        )
    )


def _correct(
    connection: Connection, quota_id: int, corrections: Mapping[tuple[Limit, int], int]
) -> None:
    for (limit, slot), amount in sorted(corrections.items()):
        if amount > 0:
            _add(connection, quota_id, Taken(limit, slot, amount))
        elif amount < 0:  # a slot that is forgotten already has nothing to give back
            where = (spent.c.quota_id == quota_id, spent.c.limit == limit, spent.c.slot == slot)
            connection.execute(update(spent).where(*where).values(amount=spent.c.amount + amount))


def _forget_old(connection: Connection, quota_id: int, now: float) -> None:
    minute: Iterable[Limit] = ("rpm", "tpm")
    connection.execute(
        delete(spent).where(
            spent.c.quota_id == quota_id,
            spent.c.limit.in_(minute),
            spent.c.slot < int(now) - 2 * _WINDOW_S,
        )
    )
