"""What storing chunk KV in 8 bits costs in quality and saves in bytes.

    python benchmarks/storage_precision.py --dataset questions.jsonl

Each prompt is answered in full, and blended from chunks stored exactly, as int8 and as fp8. Shown:
KL of the first answer token against the full prefill (nats) with its bootstrap 95 % interval, how
often the most likely token is the same, and the bytes a token takes. `--ratio 0` looks at the
stored KV alone, with nothing computed again. The data set is one that `kvweave bench rag` writes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

import numpy as np

from kvweave.bench import read_dataset
from kvweave.bench.prompts import chat_messages
from kvweave.bench.scoring import kl_divergence, same_top1
from kvweave.config import Config
from kvweave.engine import ReuseOptions, SamplingParams
from kvweave.engine.build import engine_around
from kvweave.engine.embedded import EmbeddedEngine
from kvweave.engine.loading import LoadedModel, load_model
from kvweave.metrics import Metrics
from kvweave.models.embedded import resolve_model
from kvweave.prompt import ChunkRegistry, Prompt, PromptBuilder, parse_messages


async def first_token(
    engine: EmbeddedEngine, prompt: Prompt, mode: str, ratio: float
) -> tuple[np.ndarray, dict]:
    """Log-probabilities `[vocab]` of the first answer token, and the request's report."""
    options = ReuseOptions(mode, recompute_ratio=ratio, first_token_logprobs=True)
    params = SamplingParams(max_tokens=1, temperature=0)
    (last,) = [delta async for delta in engine.generate(prompt, params, options)]
    assert last.report is not None and last.report.first_token_logprobs is not None
    return np.frombuffer(last.report.first_token_logprobs, "<f4"), last.report.to_dict()


async def measure(
    loaded: LoadedModel, prompts: list[Prompt], storage: str, ratio: float, folder: Path
) -> dict:
    config = Config.model_validate(
        {
            "kv_cache": {
                "ssd_cache_dir": str(folder),
                "ssd_cache_max_gb": 0.0,
                "gpu_kv_pool_gb": 4.0,
                "storage_dtype": storage,
                "plan_loads": False,
            }
        }
    )
    engine = engine_around(loaded, config, Metrics())
    engine.start()
    divergences, same = [], []
    try:
        for prompt in prompts:
            full, _ = await first_token(engine, prompt, "full", ratio)
            chunks = [s.token_ids for s in prompt.segments if s.role == "chunk"]
            await engine.warm(prompt.prefix_ids, chunks)
            blended, report = await first_token(engine, prompt, "blend", ratio)
            assert all(chunk["loaded"] for chunk in report["chunks"])
            divergences.append(kl_divergence(full, blended))
            same.append(same_top1(full, blended))
        stats = engine.tier_stats()["gpu"]
    finally:
        engine.stop()
    means = np.random.default_rng(0).choice(divergences, (2000, len(divergences))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {
        "storage": storage,
        "kl": round(float(np.mean(divergences)), 4),
        "kl_95": [round(float(low), 4), round(float(high), 4)],
        "same_top1": round(float(np.mean(same)), 3),
        "used_mb": round(stats.used_bytes / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--ratio", type=float, default=0.15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    loaded = load_model(resolve_model(args.model), args.model, "float32")
    builder = PromptBuilder(loaded.tokenizer, registry=ChunkRegistry())
    prompts = [
        builder.build(parse_messages(chat_messages(question)))
        for question in read_dataset(args.dataset)[: args.questions]
    ]
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            asyncio.run(measure(loaded, prompts, storage, args.ratio, Path(folder)))
            for storage in ("auto", "int8", "fp8")
        ]
    if args.json:
        print(json.dumps(rows))
        return
    print(f"{'storage':9}{'KL':>9}{'95 % interval':>20}{'same top-1':>12}{'MB':>9}")
    for row in rows:
        low, high = row["kl_95"]
        print(
            f"{row['storage']:9}{row['kl']:9.4f}{f'[{low:.4f}, {high:.4f}]':>20}"
            f"{row['same_top1']:12.0%}{row['used_mb']:9.1f}"
        )


if __name__ == "__main__":
    main()
