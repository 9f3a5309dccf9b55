"""What storing chunk KV in 8 bits costs in quality and saves in bytes.

    python benchmarks/storage_precision.py --dataset questions.jsonl

Each prompt is answered in full, and blended from chunks stored exactly, as int8 and as fp8. Shown:
token F1 of the answers (of full prefills in the first line), KL of the first answer token against
the full prefill (nats), both with their bootstrap 95 % intervals, how often the most likely token
is the same, and the bytes all chunks take. `--ratio 0` looks at the stored KV alone, with nothing
computed again. The data set is one that `kvweave bench rag` writes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

import numpy as np

from kvweave.bench import Question, read_dataset
from kvweave.bench.prompts import chat_messages
from kvweave.bench.scoring import best_f1, kl_divergence, same_top1
from kvweave.config import Config
from kvweave.engine import ReuseOptions, SamplingParams
from kvweave.engine.build import engine_around
from kvweave.engine.embedded import EmbeddedEngine
from kvweave.engine.loading import LoadedModel, load_model
from kvweave.metrics import Metrics
from kvweave.models.embedded import resolve_model
from kvweave.prompt import ChunkRegistry, Prompt, PromptBuilder, parse_messages

MAX_ANSWER_TOKENS = 16


async def ask(
    engine: EmbeddedEngine, prompt: Prompt, mode: str, ratio: float
) -> tuple[str, np.ndarray, dict]:
    """The answer, the log-probabilities `[vocab]` of its first token, the request's report."""
    options = ReuseOptions(mode, recompute_ratio=ratio, first_token_logprobs=True)
    params = SamplingParams(max_tokens=MAX_ANSWER_TOKENS, temperature=0)
    text = ""
    async for last in engine.generate(prompt, params, options):
        text += last.text
    assert last.report is not None and last.report.first_token_logprobs is not None
    return text, np.frombuffer(last.report.first_token_logprobs, "<f4"), last.report.to_dict()


def interval(values: list[float]) -> list[float]:
    """Bootstrap 95 % interval of the mean."""
    means = np.random.default_rng(0).choice(values, (2000, len(values))).mean(axis=1)
    return [round(float(edge), 4) for edge in np.percentile(means, [2.5, 97.5])]


async def measure(
    loaded: LoadedModel,
    asked: list[tuple[Question, Prompt]],
    storage: str,
    ratio: float,
    folder: Path,
) -> dict:
    config = Config.model_validate(
        {
            "kv_cache": {
                "ssd_cache_dir": str(folder),
                "ssd_cache_max_gb": 0.0,
                "gpu_kv_pool_gb": 4.0,
                "storage_dtype": storage,
                "plan_loads": False,
            },
            "quality": {"gate": False},
        }
    )
    engine = engine_around(loaded, config, Metrics())
    engine.start()
    divergences, same, scores, full_scores = [], [], [], []
    try:
        for question, prompt in asked:
            full_text, full, _ = await ask(engine, prompt, "full", ratio)
            chunks = [s.token_ids for s in prompt.segments if s.role == "chunk"]
            await engine.warm(prompt.prefix_ids, chunks)
            text, blended, report = await ask(engine, prompt, "blend", ratio)
            full_scores.append(best_f1(full_text, question.answers))
            scores.append(best_f1(text, question.answers))
            assert all(chunk["loaded"] for chunk in report["chunks"])
            divergences.append(kl_divergence(full, blended))
            same.append(same_top1(full, blended))
        stats = engine.tier_stats()["gpu"]
    finally:
        engine.stop()
    return {
        "storage": storage,
        "full_f1": round(float(np.mean(full_scores)), 3),
        "f1": round(float(np.mean(scores)), 3),
        "f1_95": interval(scores),
        "kl": round(float(np.mean(divergences)), 4),
        "kl_95": interval(divergences),
        "same_top1": round(float(np.mean(same)), 3),
        "used_mb": round(stats.used_bytes / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-reader")
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--ratio", type=float, default=0.15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    loaded = load_model(resolve_model(args.model), args.model, "float32")
    builder = PromptBuilder(loaded.tokenizer, registry=ChunkRegistry())
    asked = [
        (question, builder.build(parse_messages(chat_messages(question))))
        for question in read_dataset(args.dataset)[: args.questions]
    ]
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            asyncio.run(measure(loaded, asked, storage, args.ratio, Path(folder)))
            for storage in ("auto", "int8", "fp8")
        ]
    if args.json:
        print(json.dumps(rows))
        return
    print(f"full prefill: F1 {rows[0]['full_f1']:.3f}")
    print(f"{'storage':9}{'F1':>7} {'95 %':16}{'KL':>9} {'95 %':20}{'same top-1':>10}{'MB':>9}")
    for row in rows:
        f1_edges, kl_edges = (
            f"[{low:.3f}, {high:.3f}]" for low, high in (row["f1_95"], row["kl_95"])
        )
        print(
            f"{row['storage']:9}{row['f1']:7.3f} {f1_edges:16}{row['kl']:9.4f} {kl_edges:20}"
            f"{row['same_top1']:10.0%}{row['used_mb']:9.1f}"
        )


if __name__ == "__main__":
    main()
