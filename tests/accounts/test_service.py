"""A request's way through accounts: let in, charged, recorded, settled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kvweave.accounts import Accounts, KeyRefused, Quota, SpentStore, UsageReader, UsageRecord


@pytest.fixture
def accounts(database) -> Iterator[Accounts]:
    accounts = Accounts(database)
    accounts.start()
    yield accounts
    accounts.close()


def record(tokens: int, status: int = 200) -> UsageRecord:
    return UsageRecord(
        time.time(), "app", "k", "m", "x", "messages", status, None, tokens, 0, 5, None, 1.0
    )


async def used(spent: SpentStore, quota: Quota, expected: int) -> None:
    """Wait until so many tokens of the budget are used, which is written behind requests."""
    deadline = time.monotonic() + 30
    while (found := spent.used(quota)["budget"]) != expected:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("recorded_first", [True, False])
async def test_a_request_is_settled_with_what_was_recorded(
    accounts, store, database, recorded_first
):
    key, text = store.create("app", quota=Quota(budget_tokens=1000))
    visit = await accounts.admit({"x-api-key": text}, charged=True)
    await visit.reserve(700)
    steps = [lambda: accounts.record(record(20)), visit.end]
    for step in steps if recorded_first else steps[::-1]:
        step()
    await used(SpentStore(database), key.quota, 25)


async def test_a_request_that_is_never_recorded_costs_what_was_reserved(accounts, store, database):
    key, text = store.create("app", quota=Quota(budget_tokens=1000))
    visit = await accounts.admit({"x-api-key": text}, charged=True)
    await visit.reserve(700)
    visit.end()
    await used(SpentStore(database), key.quota, 700)


@pytest.mark.parametrize(
    ("status", "answered", "cost"), [(500, 0, 0), (429, 0, 0), (500, 5, 25), (499, 0, 20)]
)
async def test_a_failed_request_costs_nothing_unless_it_had_begun_to_answer_or_was_left_alone(
    accounts, store, database, status, answered, cost
):
    key, text = store.create("app", quota=Quota(budget_tokens=1000))
    visit = await accounts.admit({"x-api-key": text}, charged=True)
    await visit.reserve(100)
    accounts.record(replace(record(20, status), completion_tokens=answered))
    visit.end()
    await used(SpentStore(database), key.quota, cost)


async def test_requests_at_once_do_not_mix_their_records(accounts, store, database):
    key, text = store.create("app", quota=Quota(budget_tokens=100_000))

    async def request(tokens: int) -> None:
        visit = await accounts.admit({"x-api-key": text}, charged=True)
        await visit.reserve(1000)
        await asyncio.sleep(0.01)
        accounts.record(record(tokens))
        await asyncio.sleep(0.01)
        visit.end()

    await asyncio.gather(*(request(n) for n in range(20)))
    await used(SpentStore(database), key.quota, sum(range(20)) + 20 * 5)


async def test_closing_gives_back_what_was_taken_and_not_used(database, store):
    key, text = store.create("app", quota=Quota(rpm=1000, budget_tokens=100_000))
    accounts = Accounts(database)
    accounts.start()
    for _ in range(30):
        visit = await accounts.admit({"x-api-key": text}, charged=True)
        accounts.record(record(20))
        visit.end()
    accounts.close()
    assert SpentStore(database).used(key.quota) == {"rpm": 30, "budget": 30 * 25}


async def test_without_keys_nobody_is_charged_and_with_them_nobody_is_anonymous(accounts, store):
    visit = await accounts.admit({}, charged=True)
    assert visit.caller.key_id is None
    await visit.reserve(10**12)
    visit.end()
    store.create("app")
    await asyncio.sleep(1.1)
    with pytest.raises(KeyRefused):
        await accounts.admit({}, charged=True)


def test_closing_what_was_never_started_writes_what_there_is(database):
    accounts = Accounts(database)
    accounts.record(record(20))
    accounts.close()
    assert UsageReader(database).totals()[0].requests == 1
