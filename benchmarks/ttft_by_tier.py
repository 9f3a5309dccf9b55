"""Time to first token of a 2,000-token RAG prompt: in full, cold, and from each tier.

    python benchmarks/ttft_by_tier.py --rounds 7

One process, one engine configuration, arms interleaved; figures are ratios within this run.
Chunks come in another order in every round, so that no exact prefix beyond the first chunk repeats.
The `ssd` tier is read with direct I/O, past the page cache, so reads really go to the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

from kvweave.config import Config
from kvweave.engine import ReuseOptions, SamplingParams
from kvweave.engine.build import build_engine
from kvweave.engine.embedded import EmbeddedEngine
from kvweave.metrics import Metrics
from kvweave.prompt import Prompt, Segment

ONE_TOKEN = SamplingParams(max_tokens=1, temperature=0)


class Workload:
    """Prompts of a prefix, `chunks` chunks in random order, and a question; random words."""

    def __init__(self, engine: EmbeddedEngine, tokens: int, chunks: int) -> None:
        self._random = random.Random(0)
        self._vocab = len(engine.tokenizer)
        self.prefix = self._ids(30)
        self._question = 40
        each = (tokens - len(self.prefix) - self._question) // chunks
        self.chunks = [self._ids(each) for _ in range(chunks)]

    def _ids(self, count: int) -> tuple[int, ...]:
        return tuple(self._random.randrange(100, self._vocab) for _ in range(count))

    def prompt(self, *, unseen: bool = False) -> Prompt:
        chunks = [self._ids(len(c)) for c in self.chunks] if unseen else list(self.chunks)
        self._random.shuffle(chunks)
        segments = [Segment("system", self.prefix)]
        segments += [Segment("chunk", c, str(i)) for i, c in enumerate(chunks)]
        segments.append(Segment("fresh", self._ids(self._question)))
        return Prompt(tuple(segments), self.prefix)


async def ttft(engine: EmbeddedEngine, prompt: Prompt, mode: str) -> tuple[float, dict]:
    """Seconds to the first token, and the request's report."""
    started = time.perf_counter()
    (last,) = [delta async for delta in engine.generate(prompt, ONE_TOKEN, ReuseOptions(mode))]
    seconds = time.perf_counter() - started
    while engine.pending_chunks():
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.1)
    assert last.report is not None
    return seconds, last.report.to_dict()


def build(folder: Path, model: str, gpu: float, cpu: float, overlap: bool) -> EmbeddedEngine:
    config = Config.model_validate(
        {
            "model": {"model_id": model},
            "kv_cache": {
                "ssd_cache_dir": str(folder),
                "gpu_kv_pool_gb": gpu,
                "cpu_kv_pool_gb": cpu,
                "pipeline_overlap": overlap,
                "plan_loads": False,  # load from the tier in question, whatever it costs
                "ssd_direct_io": True,  # from the disk, not from the page cache
            },
            "quality": {"gate": False},
        }
    )
    engine = build_engine(config, Metrics())
    engine.start()
    return engine


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    # One engine per tier that chunks are to come from: the tiers above it are switched off.
    sizes = {"gpu": (1.0, 0.0), "cpu": (0.0, 1.0), "ssd": (0.0, 0.0)}
    for tier, (gpu, cpu) in sizes.items():
        engine = build(folder / tier, args.model, gpu, cpu, overlap=True)
        workload = Workload(engine, args.tokens, args.chunks)
        try:
            await ttft(engine, workload.prompt(), "full")  # warm up
            await engine.warm(workload.prefix, workload.chunks)
            await asyncio.sleep(1)
            for _ in range(args.rounds):
                for arm in ("full", "blend", "reuse") + (("cold",) if tier == "gpu" else ()):
                    prompt = workload.prompt(unseen=arm == "cold")
                    seconds, report = await ttft(engine, prompt, "blend" if arm == "cold" else arm)
                    found = {c["tier"] for c in report["chunks"]}
                    expected = {"full": set(), "cold": {None}}.get(arm, {tier})
                    assert found == expected, (arm, tier, found)
                    times.setdefault(f"{arm} {tier}", []).append(seconds)
        finally:
            engine.stop()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = asyncio.run(measure(args, Path(folder)))
    rows = []
    for name, seconds in times.items():
        arm, tier = name.split()
        full = statistics.median(times[f"full {tier}"])
        rows.append(
            {
                "arm": arm,
                "tier": tier,
                "ttft_ms": round(statistics.median(seconds) * 1e3, 1),
                "full_over_this": round(full / statistics.median(seconds), 2),
            }
        )
    if args.json:
        print(json.dumps(rows))
        return
    print(f"{'arm':8}{'tier':6}{'median TTFT, ms':>18}{'full / this':>14}")
    for row in rows:
        print(f"{row['arm']:8}{row['tier']:6}{row['ttft_ms']:18.1f}{row['full_over_this']:14.2f}")


if __name__ == "__main__":
    main()
