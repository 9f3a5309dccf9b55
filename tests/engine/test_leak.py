"""Whatever becomes of a request, it gives back all that it took."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading

import pytest
import torch

from kvweave.engine import ReuseOptions, SamplingParams
from kvweave.engine.sampling import FirstTokenCapture
from kvweave.prompt import Prompt, Segment

REQUESTS, AT_ONCE, POOL = 240, 4, 2048
MODES = ("blend", "blend", "reuse", "prefix", "full")


def held(engine):
    """What requests hold between them, as far as it is not visible from outside."""
    router = engine._manager.output_router
    return {
        "plans": len(engine._filler._plans),
        "log-probabilities": len(engine._captured._captured),
        "handlers": len(router.result_handlers),
        "outputs nobody fetches": router.output_queue.qsize(),
        "admitted": engine._admission.active,
        "chunks to compute": engine.pending_chunks(),
    }


def open_files():
    return len(os.listdir("/proc/self/fd"))


async def one(engine, tools, draw):
    """A request of any kind, kept or cancelled at any time; returns whether it ran to its end."""
    order = draw.choices(range(20), [1 / (n + 1) for n in range(20)], k=draw.randrange(5))
    prompt = tools.rag_prompt(order, question=draw.randrange(1000), tokens=draw.choice((30, 60)))
    params = SamplingParams(max_tokens=draw.randrange(1, 8), temperature=draw.choice((0.0, 1.0)))
    reuse = ReuseOptions(draw.choice(MODES), first_token_logprobs=draw.random() < 0.3)
    stream = engine.generate(prompt, params, reuse)
    if draw.random() < 0.15:
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(draw.random() * 0.03)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await stream.aclose()
        return False
    leave_after = draw.randrange(4) if draw.random() < 0.15 else None
    async for delta in stream:
        if delta.finish_reason is None and delta.token_count == leave_after:
            await stream.aclose()
            return False
    return True


async def test_requests_of_all_kinds_leave_nothing_behind(make_engine, tools):
    """With hits in all tiers, misses, evictions and cancellations; memory for good is bounded by
    the tiers, and everything else returns to what it was."""
    engine = make_engine(
        kv_pages_tokens=POOL,
        gpu_kv_pool_gb=0.0001,
        cpu_kv_pool_gb=0.0002,
        ssd_cache_max_gb=0.001,
    )
    draw = random.Random(5)

    async def serve(count):
        waiting = iter(range(count))

        async def client():
            return sum([await one(engine, tools, draw) for _ in waiting])

        finished = sum(await asyncio.gather(*(client() for _ in range(AT_ONCE))))
        await tools.settle(engine)
        return finished

    await serve(40)
    threads, files = threading.active_count(), open_files()
    finished = await serve(REQUESTS)
    assert 0.5 * REQUESTS < finished < REQUESTS
    assert {what: count for what, count in held(engine).items() if count} == {}
    assert threading.active_count() <= threads
    assert open_files() <= files + 2
    assert all(0 < fill.used_bytes <= fill.capacity_bytes for fill in engine.tier_stats().values())

    # Every page of the pool is free again: one request that needs them all is admitted and runs.
    prompt = Prompt((Segment("fresh", tools.ids(POOL - 8, 1)),), ())
    _, last = await asyncio.wait_for(
        tools.answer(engine, prompt, SamplingParams(max_tokens=8, temperature=0)), 60
    )
    assert last.token_count <= 8

    # And no lease pins anything: the memory tiers can be emptied to the last byte.
    for _ in range(200):  # what was loaded last may still be on its way into an upper tier
        engine._cache.clear()
        stats = engine.tier_stats()
        used = [stats[tier].used_bytes for tier in ("gpu", "cpu", "ssd")]
        if used == [0, 0, 0]:
            break
        await asyncio.sleep(0.05)
    assert used == [0, 0, 0]


@pytest.mark.parametrize("cancelled", [False, True])
def test_log_probabilities_of_a_request_that_is_gone_are_not_kept(cancelled):
    """The step that was running when it was cancelled still computes them."""
    capture = FirstTokenCapture()
    capture.expect("request")
    capture._rows = [(0, "request")]
    if cancelled:
        capture.take("request")
    capture(torch.zeros(1, 5), torch.zeros(1))
    assert (capture.take("request") is None) == cancelled
    assert capture.take("request") is None
