"""Does memory stay flat? Thousands of requests through the embedded engine, RSS all along.

    python benchmarks/leak.py --requests 5000

A 2-layer model with random weights, so that the engine and the store are what is measured. Prompts
take chunks by Zipf's law and new ones now and then; the tiers are so small that each evicts all the
time. Requests come in all modes, greedy and sampled, four at a time; one in ten is cancelled: while
it waits, or after a few tokens. Reported are the resident memory every 500 requests and its slope
over the second half, by least squares. It is flat if all requests to come, as many again, would add
less than 1 % at this slope.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from kvweave.config import Config
from kvweave.engine import ReuseOptions, SamplingParams
from kvweave.engine.build import engine_around
from kvweave.engine.embedded import EmbeddedEngine
from kvweave.engine.loading import LoadedModel
from kvweave.metrics import Metrics
from kvweave.models import LlamaFamily
from kvweave.models.embedded import resolve_model
from kvweave.prompt import Prompt, Segment

CHUNKS = 80
CONCURRENCY = 4
MODES = ("blend", "blend", "blend", "reuse", "prefix", "full")


def tiny_model() -> LoadedModel:
    """Two layers with random weights, and the embedded model's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(resolve_model("smollm2"))
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    return LoadedModel("tiny", model, LlamaFamily(model), tokenizer, "tiny", frozenset({2}))


def build(loaded: LoadedModel, folder: Path) -> EmbeddedEngine:
    """Tiers for about 10, 20 and 50 of the chunks."""
    kv_cache = {
        "gpu_kv_pool_gb": 0.0005,
        "cpu_kv_pool_gb": 0.001,
        "ssd_cache_max_gb": 0.0035,
        "ssd_cache_dir": str(folder),
        "plan_loads": False,  # computing is so fast here that nothing would be loaded
    }
    config = Config.model_validate(
        {
            "model": {"max_model_len": 2048},
            "kv_cache": kv_cache,
            "engine": {"kv_pages_tokens": 8192},
            "quality": {"gate": False},
        }
    )
    return engine_around(loaded, config, Metrics())


class Workload:
    """Requests of every kind, drawn by one seeded generator."""

    def __init__(self, engine: EmbeddedEngine, seed: int) -> None:
        self._engine = engine
        self._random = random.Random(seed)
        self._vocab = len(engine.tokenizer)
        self._prefix = self._ids(12)
        self._chunks = [self._ids(self._random.randrange(30, 130)) for _ in range(CHUNKS)]
        self._popularity = [1 / (rank + 1) for rank in range(CHUNKS)]
        self.seen: Counter[str] = Counter()

    async def one(self) -> None:
        """Send one request, or begin one and leave it."""
        draw = self._random
        prompt = self._prompt()
        params = SamplingParams(
            max_tokens=draw.randrange(1, 13), temperature=draw.choice((0.0, 1.0)), top_p=0.9, seed=1
        )
        reuse = ReuseOptions(draw.choice(MODES), first_token_logprobs=draw.random() < 0.1)
        stream = self._engine.generate(prompt, params, reuse)
        kept = draw.randrange(-1, 4) if draw.random() < 0.1 else None
        if kept == -1:
            task = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(draw.random() * 0.01)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                await task
            self.seen["cancelled while waiting"] += 1
            return
        async for delta in stream:
            if kept is not None and delta.token_count >= kept:
                self.seen["cancelled while streaming"] += 1
                break
            if delta.report is not None:
                for chunk in delta.report.chunks:
                    self.seen[chunk.tier or f"miss: {chunk.miss_reason}"] += 1
        await stream.aclose()

    def _prompt(self) -> Prompt:
        count = self._random.randrange(0, 7)
        chunks = self._random.choices(self._chunks, self._popularity, k=count)
        if self._random.random() < 0.2:
            chunks.append(self._ids(60))
        segments = [Segment("system", self._prefix)]
        segments += [Segment("chunk", ids, str(i)) for i, ids in enumerate(chunks)]
        segments.append(Segment("fresh", self._ids(self._random.randrange(1, 30))))
        return Prompt(tuple(segments), self._prefix)

    def _ids(self, count: int) -> tuple[int, ...]:
        return tuple(self._random.randrange(300, self._vocab) for _ in range(count))


async def run(engine: EmbeddedEngine, requests: int, every: int) -> list[tuple[int, int]]:
    """Requests done and resident bytes, every `every` requests."""
    work, process = Workload(engine, seed=0), psutil.Process()
    samples: list[tuple[int, int]] = []
    for done in range(0, requests, every):
        started = time.perf_counter()
        waiting = iter(range(every))

        async def client(waiting=waiting) -> None:
            for _ in waiting:
                await work.one()

        await asyncio.gather(*(client() for _ in range(CONCURRENCY)))
        while engine.pending_chunks():
            await asyncio.sleep(0.02)
        gc.collect()
        samples.append((done + every, process.memory_info().rss))
        seconds = time.perf_counter() - started
        print(f"{done + every:6} requests  RSS {samples[-1][1] / 1e6:8.2f} MB  {seconds:5.1f} s")
    print("seen:", json.dumps(dict(work.seen)))
    print("tiers:", {name: fill.used_bytes for name, fill in engine.tier_stats().items()})
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--every", type=int, default=500)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        engine = build(tiny_model(), Path(folder) / "kv")
        engine.start()
        try:
            samples = asyncio.run(run(engine, args.requests, args.every))
        finally:
            engine.stop()
    half = np.array(samples[len(samples) // 2 :], dtype=float)
    slope = np.polyfit(half[:, 0], half[:, 1], 1)[0]
    growth = slope * args.requests / half[-1, 1]
    verdict = "flat" if growth < 0.01 else "GROWING"
    print(
        f"slope over the second half: {slope:.0f} bytes per request, "
        f"{growth:+.2%} in {args.requests} more: {verdict}"
    )
    raise SystemExit(verdict != "flat")


if __name__ == "__main__":
    main()
