"""A running engine around a tiny model with a real tokenizer, and prompts for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
import torch

from kvweave.config import Config
from kvweave.engine import Delta, ReuseOptions, SamplingParams
from kvweave.engine.build import engine_around
from kvweave.engine.embedded import EmbeddedEngine
from kvweave.engine.loading import LoadedModel
from kvweave.metrics import Metrics
from kvweave.prompt import Prompt, Segment

GREEDY = SamplingParams(max_tokens=12, temperature=0)


@pytest.fixture
def make_engine(tmp_path, tiny) -> Iterator[Callable[..., EmbeddedEngine]]:
    with ExitStack() as stack:

        def make(
            loaded: LoadedModel = tiny, metrics: Metrics | None = None, **kv_cache: object
        ) -> EmbeddedEngine:
            quality = kv_cache.pop("quality", {"gate": False})
            engine_keys = {k: kv_cache.pop(k) for k in list(kv_cache) if k in ENGINE_KEYS}
            config = Config.model_validate(
                {
                    "quality": quality,
                    "model": {"max_model_len": 2048},
                    # Computing is so fast here that it would often be chosen over loading.
                    "kv_cache": {"ssd_cache_dir": str(tmp_path / "kv"), "plan_loads": False}
                    | kv_cache,
                    "engine": {"kv_pages_tokens": 8192} | engine_keys,
                }
            )
            engine = engine_around(loaded, config, metrics or Metrics())
            engine.start()
            stack.callback(engine.stop)
            return engine

        yield make


ENGINE_KEYS = ("kv_pages_tokens", "max_batch_tokens", "max_waiting_requests")


def ids(count: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(300, 40000, (count,), generator=generator).tolist())


def rag_prompt(order=(0, 1, 2), question=50, tokens=60) -> Prompt:
    """A prefix, chunks in `order`, and a question; equal numbers mean equal text."""
    prefix = ids(10, 99)
    chunks = [Segment("chunk", ids(tokens, i), f"chunk-{i}") for i in order]
    return Prompt((Segment("system", prefix), *chunks, Segment("fresh", ids(8, question))), prefix)


async def answer(
    engine: EmbeddedEngine,
    prompt: Prompt,
    params: SamplingParams = GREEDY,
    reuse: ReuseOptions | None = None,
    **kwargs: str,
) -> tuple[str, Delta]:
    """The whole text and the last delta."""
    text = ""
    async for delta in engine.generate(prompt, params, reuse or ReuseOptions(), **kwargs):
        text += delta.text
    return text, delta


async def settle(engine: EmbeddedEngine) -> None:
    """Wait until missing chunks are computed and refills are done."""
    while engine.pending_chunks():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)


@pytest.fixture(scope="session")
def tools():
    """The helpers above, for the test modules."""
    from types import SimpleNamespace

    return SimpleNamespace(ids=ids, rag_prompt=rag_prompt, answer=answer, settle=settle)
