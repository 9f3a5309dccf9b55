"""Admission: in order, never over capacity, and nothing leaks."""

from __future__ import annotations

import asyncio
import random

import pytest

from kvweave.engine import EngineOverloaded
from kvweave.engine.admission import Admission


async def test_requests_start_in_the_order_they_came():
    admission, started = Admission(10, 10), []

    async def request(name, tokens):
        async with admission.admit(tokens):
            started.append(name)
            await asyncio.sleep(0.01)

    await asyncio.gather(request("big", 9), request("bigger", 10), request("small", 1))
    assert started == ["big", "bigger", "small"]


async def test_a_full_queue_turns_away_and_says_when_to_come_back():
    admission = Admission(1, 0)
    async with admission.admit(1):
        with pytest.raises(EngineOverloaded) as error:
            async with admission.admit(1):
                pass
    assert error.value.retry_after_s > 0


async def test_random_arrivals_failures_and_cancellations_leave_the_capacity_whole():
    admission, held, worst = Admission(100, 1000), 0, 0
    rng = random.Random(0)

    async def request():
        nonlocal held, worst
        tokens = rng.randint(1, 60)
        async with admission.admit(tokens):
            held += tokens
            worst = max(worst, held)
            try:
                await asyncio.sleep(rng.random() / 200)
                if rng.random() < 0.2:
                    raise RuntimeError
            finally:
                held -= tokens

    tasks = []
    for _ in range(400):
        tasks.append(asyncio.create_task(request()))
        if rng.random() < 0.5:
            rng.choice(tasks).cancel()
        if rng.random() < 0.3:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert worst <= 100
    assert admission.active == 0
    async with asyncio.timeout(1), admission.admit(100):
        pass
