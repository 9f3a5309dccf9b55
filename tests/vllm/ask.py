"""Asks an engine a few prompts in every way, writes the answers: `ask MODEL FOLDER RANKS OUT`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.vllm.engine import start_engine


def main() -> None:
    model, folder, ranks, out = sys.argv[1:]
    engine = start_engine(
        model, Path(folder) / f"kv{ranks}", tensor_parallel_size=int(ranks), max_model_len=512
    )
    prompts = [engine.prompt((n, n + 1, n + 2, n + 3)) for n in (1, 11, 21, 31)]
    plain = engine.ask(prompts)
    for prompt in prompts:
        engine.ask([prompt], 0.15, tokens=24)  # chunks are stored while it is answered
    blended = engine.ask(prompts, 0.15)
    told = {
        "plain": [answer.token_ids for answer in plain],
        "blended": [answer.token_ids for answer in blended],
        "reused": [answer.token_ids for answer in engine.ask(prompts, 0.0, mode="reuse")],
        "all": [answer.token_ids for answer in engine.ask(prompts, 1.0)],
        "matched": [answer.report["matched"] for answer in blended],
    }
    Path(out).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
