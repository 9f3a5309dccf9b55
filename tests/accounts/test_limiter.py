"""Limits: nobody gets more, on both databases, whatever runs at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvweave.accounts import LimitExceeded, Quota
from kvweave.accounts.limiter import Limiter
from kvweave.accounts.spending import (
    Shortage,
    SpentStore,
    period_end,
    period_start,
    slot_of,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def spent(database) -> SpentStore:
    return SpentStore(database)


@pytest.fixture
def make_limiter(spent, executor, clock):
    return lambda: Limiter(spent, executor, clock)


@pytest.fixture
def make_quota(store):
    return lambda **limits: store.create("app", quota=Quota(**limits))[0].quota


async def attempts(limiter, quota, count, tokens=0):
    """How many of `count` requests at once were let through."""

    async def one() -> bool:
        try:
            await limiter.charge(quota, requests=1, tokens=tokens)
        except LimitExceeded:
            return False
        return True

    return sum(await asyncio.gather(*(one() for _ in range(count))))


async def test_no_minute_sees_more_requests_than_the_limit(make_limiter, make_quota, clock):
    limiter, quota, admitted = make_limiter(), make_quota(rpm=10), []
    for step in range(0, 200, 3):
        clock.now = NOW + step
        admitted += [clock.now] * await attempts(limiter, quota, 4)
    worst = max(sum(t - 60 < other <= t for other in admitted) for t in admitted)
    assert worst == 10
    assert len(admitted) >= 30  # of 200 seconds, with a little lost to caution


async def test_fifty_at_once_in_two_processes_get_exactly_the_limit(make_limiter, make_quota):
    one, other, quota = make_limiter(), make_limiter(), make_quota(rpm=60)
    got = await asyncio.gather(attempts(one, quota, 50), attempts(other, quota, 50))
    while sum(got) < 60:  # what one had taken and did not use comes back
        one.end_leases(), one.flush(), other.end_leases(), other.flush()
        more = await asyncio.gather(attempts(one, quota, 5), attempts(other, quota, 5))
        assert sum(more)
        got += more
    assert sum(got) == 60


async def test_many_requests_cost_few_transactions(make_limiter, make_quota, spent, monkeypatch):
    calls = Counter()
    take = spent.take

    def counted(*arguments):
        calls["take"] += 1
        return take(*arguments)

    monkeypatch.setattr(spent, "take", counted)
    limiter, quota = make_limiter(), make_quota(rpm=10**6, tpm=10**9, budget_tokens=10**12)
    for _ in range(40):
        assert await attempts(limiter, quota, 50, tokens=100) == 50
    assert calls["take"] < 20  # for 2,000 requests


async def test_tokens_are_charged_before_and_settled_after(make_limiter, make_quota, spent, clock):
    limiter, quota = make_limiter(), make_quota(tpm=1000, budget_tokens=5000)
    charge = await limiter.charge(quota, requests=1, tokens=1)
    await limiter.charge_more(charge, 800)
    with pytest.raises(LimitExceeded, match=r"1,000 tokens a minute; 800 are used.*need 300"):
        await limiter.charge(quota, requests=1, tokens=300)
    limiter.settle(charge, 50)
    limiter.end_leases(), limiter.flush()
    assert spent.used(quota, clock.now) == {"tpm": 50, "budget": 50}
    await limiter.charge(quota, requests=1, tokens=900)


async def test_what_running_requests_have_reserved_is_soon_worth_asking_for_again(
    make_limiter, make_quota
):
    limiter, quota = make_limiter(), make_quota(budget_tokens=1000)
    running = await limiter.charge(quota, requests=1, tokens=900)
    with pytest.raises(LimitExceeded) as error:
        await limiter.charge(quota, requests=1, tokens=200)
    assert error.value.retry_after_s < 10
    limiter.end(running)
    with pytest.raises(LimitExceeded) as error:
        await limiter.charge(quota, requests=1, tokens=200)
    assert error.value.retry_after_s > 3600


async def test_more_used_than_charged_counts_too(make_limiter, make_quota, spent, clock):
    limiter, quota = make_limiter(), make_quota(tpm=1000)
    limiter.settle(await limiter.charge(quota, requests=1, tokens=1), 700)
    limiter.end_leases(), limiter.flush()
    assert spent.used(quota, clock.now) == {"tpm": 700}


async def test_what_is_refused_by_one_limit_is_charged_to_none(
    make_limiter, make_quota, spent, clock
):
    limiter, quota = make_limiter(), make_quota(rpm=5, tpm=10)
    with pytest.raises(LimitExceeded) as error:
        await limiter.charge(quota, requests=1, tokens=11)
    assert (error.value.limit, error.value.retry_after_s) == ("tpm", None)
    limiter.end_leases(), limiter.flush()
    assert spent.used(quota, clock.now) == {"rpm": 0, "tpm": 0}


async def test_the_wait_that_is_told_is_long_enough(make_limiter, make_quota, clock):
    limiter, quota = make_limiter(), make_quota(rpm=3)
    assert await attempts(limiter, quota, 1) == 1
    clock.now += 20
    assert await attempts(limiter, quota, 5) == 2
    with pytest.raises(LimitExceeded) as error:
        await limiter.charge(quota, requests=1, tokens=0)
    assert 30 < error.value.retry_after_s < 45
    clock.now += error.value.retry_after_s
    assert await attempts(limiter, quota, 5) == 1


async def test_a_budget_begins_anew_with_the_calendar(make_limiter, make_quota, clock):
    limiter, quota = make_limiter(), make_quota(budget_tokens=100, budget_period="month")
    limiter.settle(await limiter.charge(quota, requests=1, tokens=100), 100)
    clock.now += 11 * 3600
    with pytest.raises(LimitExceeded) as error:
        await limiter.charge(quota, requests=1, tokens=1)
    assert error.value.retry_after_s == pytest.approx(3600)
    clock.now += 3600
    await limiter.charge(quota, requests=1, tokens=100)


async def test_whoever_hangs_up_while_waiting_leaves_nothing_taken(
    make_limiter, make_quota, spent, clock
):
    limiter, quota = make_limiter(), make_quota(rpm=5)
    waiting = asyncio.create_task(limiter.charge(quota, requests=1, tokens=0))
    await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    for _ in range(200):
        limiter.end_leases(), limiter.flush()
        await asyncio.sleep(0.01)
    assert spent.used(quota, clock.now) == {"rpm": 0}
    assert await attempts(limiter, quota, 9) == 5


def test_fifty_threads_take_exactly_what_there_is(spent, make_quota):
    quota = make_quota(budget_tokens=1000)

    def take(amount: int) -> int:
        outcome = spent.take(quota, {"budget": amount}, {"budget": 50}, {}, NOW)
        return 0 if isinstance(outcome, Shortage) else outcome[0].amount

    with ThreadPoolExecutor(50) as pool:
        taken = list(pool.map(take, [7] * 400))
    assert sum(taken) == spent.used(quota, NOW)["budget"] <= 1000
    assert 1000 - sum(taken) < 7


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 4e9), st.sampled_from(["day", "month"]))
def test_periods_follow_each_other_without_gaps(now, period):
    start, end = period_start(period, now), period_end(period, now)
    assert start <= now < end
    assert period_start(period, end) == end
    assert period_start(period, end - 1) == start


def test_taking_and_correcting_at_once_never_block_each_other_for_good(spent, make_quota):
    quotas = [make_quota(rpm=10**9, tpm=10**9, budget_tokens=10**9) for _ in range(2)]
    limits = ("rpm", "tpm", "budget")

    def work(number: int) -> None:
        slots = {limit: slot_of(limit, quotas[0], NOW) for limit in limits}
        order = limits if number % 2 else limits[::-1]
        changes = {(limit, slots[limit]): 1 for limit in order}
        if number % 3:
            spent.take(quotas[number % 2], dict.fromkeys(order, 1), {}, {}, NOW)
        else:
            spent.correct({quota.id: changes for quota in quotas[:: 1 if number % 2 else -1]})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(240)))
    expected = 160 + 80 * 2  # each take adds one to its quota, each correction one to both
    assert sum(spent.used(quota, NOW)["rpm"] for quota in quotas) == expected
