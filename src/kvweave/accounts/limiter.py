"""Holds each key to its limits, asking the database far less often than there are requests.

A process takes from a quota what its waiting requests need and, while much is left, some more; it
serves requests from that for at most a lease, and gives the rest back. Since everything is taken
before it is used, all processes together never use more than the limit.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from kvweave.accounts.errors import LimitExceeded
from kvweave.accounts.keystore import Quota
from kvweave.accounts.spending import (
    LEASE_S,
    Limit,
    Shortage,
    SpentStore,
    Taken,
    limits_of,
    slot_of,
)

_RUNNING_S = 2.0
"""When to ask again for what running requests have reserved: most need less than they may."""

_REFUSAL_S = 0.2
"""How long a shortage is believed without asking again, so that a flood costs nothing."""


@dataclass(slots=True)
class Charge:
    """What one request has been charged so far."""

    quota: Quota
    parts: list[Taken] = field(default_factory=list)
    running: bool = True

    @property
    def tokens(self) -> int:
        """How many tokens it is charged for."""
        by_limit = Counter[Limit]()
        for part in self.parts:
            by_limit[part.limit] += part.amount
        return max(by_limit["tpm"], by_limit["budget"])


@dataclass(slots=True)
class _Lease:
    """An amount that was taken and is not used yet."""

    part: Taken
    until: float


@dataclass(slots=True)
class _Pool:
    """What this process has of one quota."""

    quota: Quota
    leases: dict[Limit, _Lease] = field(default_factory=dict)
    used: Counter[Limit] = field(default_factory=Counter)  # since the limit was last taken from
    waiting: Counter[Limit] = field(default_factory=Counter)
    corrections: Counter[tuple[Limit, int]] = field(default_factory=Counter)
    running: Counter[Limit] = field(default_factory=Counter)  # charged, and not settled yet
    refusal: tuple[float, Shortage] | None = None  # until when it is believed
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def is_idle(self) -> bool:
        counts = (*self.waiting.values(), *self.running.values())
        return not (self.leases or self.corrections or any(counts))


class Limiter:
    """Charges requests to quotas.

    `charge` and `charge_more` are for one event loop; the rest may be called by any thread.

    Args:
        store: what all processes share.
        executor: runs its transactions, which wait for the disk.
        clock: seconds since the epoch; the same in all processes.
    """

    def __init__(
        self, store: SpentStore, executor: Executor, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._executor = executor
        self._clock = clock
        self._lock = threading.Lock()
        self._pools: dict[int, _Pool] = {}

    async def charge(self, quota: Quota, *, requests: int, tokens: int) -> Charge:
        """Charge for a request that begins.

        Raises:
            LimitExceeded: a limit has no room for it. Nothing was charged.
            AccountsError: the database does not answer.
        """
        charge = Charge(quota)
        await self._take(charge, {"rpm": requests, "tpm": tokens, "budget": tokens})
        return charge

    async def charge_more(self, charge: Charge, tokens: int) -> None:
        """Raise what the request is charged for to `tokens`, if it is less.

        Raises:
            LimitExceeded, AccountsError: as for `charge`.
        """
        more = tokens - charge.tokens
        await self._take(charge, {"tpm": more, "budget": more})

    def end(self, charge: Charge) -> None:
        """The request has ended. Until it is settled it counts with what it was charged."""
        with self._lock:
            if charge.running:
                charge.running = False
                pool = self._pool(charge.quota)
                pool.refusal = None
                for part in charge.parts:
                    pool.running[part.limit] -= part.amount

    def settle(self, charge: Charge, tokens: int) -> None:
        """The request has ended and used `tokens`: give the rest back, or count what is missing."""
        self.end(charge)
        with self._lock:
            pool = self._pool(charge.quota)
            for limit in limits_of(charge.quota):
                if limit != "rpm":
                    parts = [part for part in charge.parts if part.limit == limit]
                    self._settle(pool, limit, parts, tokens)
        charge.parts = []

    def _settle(self, pool: _Pool, limit: Limit, parts: list[Taken], tokens: int) -> None:
        surplus = sum(part.amount for part in parts) - tokens
        if surplus < 0:
            pool.corrections[limit, slot_of(limit, pool.quota, self._clock())] -= surplus
        for part in reversed(parts):
            if surplus <= 0:
                break
            pool.corrections[limit, part.slot] -= min(surplus, part.amount)
            surplus -= part.amount

    def end_leases(self) -> None:
        """Let the next `flush` give everything back: no request comes any more."""
        with self._lock:
            for pool in self._pools.values():
                for lease in pool.leases.values():
                    lease.until = 0.0

    def flush(self) -> None:
        """Give back what was not used within its lease, and write corrections down.

        Raises:
            AccountsError: the database does not answer; they are kept for the next time.
        """
        changed: list[tuple[_Pool, Counter[tuple[Limit, int]]]] = []
        with self._lock:
            now = self._clock()
            for pool in list(self._pools.values()):
                old = [k for k, lease in pool.leases.items() if now > lease.until]
                _give_back(pool, old)
                if pool.is_idle():
                    del self._pools[pool.quota.id]
                elif pool.corrections:
                    changed.append((pool, pool.corrections))
                    pool.corrections = Counter()
        if not changed:
            return
        try:
            self._store.correct({pool.quota.id: corrections for pool, corrections in changed})
        except BaseException:
            with self._lock:
                for pool, corrections in changed:
                    self._pool(pool.quota).corrections.update(corrections)
            raise

    async def _take(self, charge: Charge, amounts: dict[Limit, int]) -> None:
        limits = limits_of(charge.quota)
        needs = {limit: n for limit, n in amounts.items() if limit in limits and n > 0}
        if not needs:
            return
        with self._lock:
            pool = self._pool(charge.quota)
            if self._serve(pool, charge, needs):
                return
            pool.waiting.update(needs)
        try:
            async with pool.turn:
                await self._take_in_turn(pool, charge, needs)
        finally:
            with self._lock:
                pool.waiting.subtract(needs)

    async def _take_in_turn(self, pool: _Pool, charge: Charge, needs: dict[Limit, int]) -> None:
        with self._lock:
            if self._serve(pool, charge, needs):
                return
            if shortage := self._refused(pool, needs):
                raise _exceeded(shortage, pool.quota)
            _give_back(pool, needs)
            corrections, pool.corrections = pool.corrections, Counter()
            # Twice what was used since the last time, so that under load a lease soon lasts.
            extra = {k: pool.waiting[k] - needs[k] + 2 * pool.used.pop(k, 0) for k in needs}
            now = self._clock()
        asked = asyncio.get_running_loop().run_in_executor(
            self._executor, self._store.take, pool.quota, needs, extra, corrections, now
        )
        try:
            outcome = await asyncio.shield(asked)
        except asyncio.CancelledError:
            # Whoever hangs up must not leave amounts behind that nobody knows of.
            asked.add_done_callback(lambda done: self._abandoned(pool, done, corrections))
            raise
        except BaseException:
            with self._lock:
                pool.corrections.update(corrections)
            raise
        with self._lock:
            if isinstance(outcome, Shortage):
                outcome = _until_settled(outcome, pool)
                pool.refusal = (self._clock() + _REFUSAL_S, outcome)
                raise _exceeded(outcome, pool.quota)
            for part in outcome:
                own = needs[part.limit]
                _charge(charge, pool, replace(part, amount=own))
                pool.leases[part.limit] = _Lease(
                    replace(part, amount=part.amount - own), now + LEASE_S
                )

    def _abandoned(
        self,
        pool: _Pool,
        done: asyncio.Future[list[Taken] | Shortage],
        corrections: Counter[tuple[Limit, int]],
    ) -> None:
        with self._lock:
            if done.cancelled() or done.exception() is not None:
                self._pool(pool.quota).corrections.update(corrections)
                return
            outcome = done.result()
            if not isinstance(outcome, Shortage):
                for part in outcome:
                    self._pool(pool.quota).corrections[part.limit, part.slot] -= part.amount

    def _pool(self, quota: Quota) -> _Pool:
        return self._pools.setdefault(quota.id, _Pool(quota))

    def _serve(self, pool: _Pool, charge: Charge, needs: dict[Limit, int]) -> bool:
        """Charge from what was taken before, if that is enough and still may be used."""
        now = self._clock()
        for limit, needed in needs.items():
            lease = pool.leases.get(limit)
            if lease is None or now > lease.until or lease.part.amount < needed:
                return False
        for limit, needed in needs.items():
            lease = pool.leases[limit]
            lease.part = replace(lease.part, amount=lease.part.amount - needed)
            _charge(charge, pool, replace(lease.part, amount=needed))
        return True

    def _refused(self, pool: _Pool, needs: dict[Limit, int]) -> Shortage | None:
        if pool.refusal is None or self._clock() > pool.refusal[0]:
            return None
        shortage = pool.refusal[1]
        return shortage if needs.get(shortage.limit, 0) >= shortage.needed else None


def _charge(charge: Charge, pool: _Pool, part: Taken) -> None:
    charge.parts.append(part)
    pool.used[part.limit] += part.amount
    pool.running[part.limit] += part.amount


def _until_settled(shortage: Shortage, pool: _Pool) -> Shortage:
    """A shorter wait, if what running requests have reserved would be enough."""
    settled = shortage.used - pool.running[shortage.limit]
    enough = shortage.needed <= shortage.allowed - settled
    if shortage.wait_s is None or shortage.limit == "rpm" or not enough:
        return shortage
    return replace(shortage, wait_s=min(shortage.wait_s, _RUNNING_S))


def _give_back(pool: _Pool, limits: Iterable[Limit]) -> None:
    for limit in limits:
        lease = pool.leases.pop(limit, None)
        if lease is not None and lease.part.amount:
            pool.corrections[limit, lease.part.slot] -= lease.part.amount
            pool.refusal = None


def _exceeded(shortage: Shortage, quota: Quota) -> LimitExceeded:
    what = "requests" if shortage.limit == "rpm" else "tokens"
    period = quota.budget_period if shortage.limit == "budget" else "minute"
    message = f"This key may use {shortage.allowed:,} {what} a {period}"
    if shortage.wait_s is None:
        message += f"; this request alone may need {shortage.needed:,}: make it smaller"
    else:
        message += f"; {shortage.used:,} are used, and this request may need {shortage.needed:,}"
    return LimitExceeded(f"{message}.", shortage.limit, shortage.wait_s)
