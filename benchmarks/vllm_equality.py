"""Does kvweave on vLLM say what plain vLLM says? Greedy answers, compared token for token.

    python benchmarks/vllm_equality.py --model FOLDER [--out FILE]

With everything recomputed (ratio 1.0) the answers must be equal: in fp32, where rounding does not
decide. Prompts are built from random words over a shared system prompt; each is asked alone, and
all of them at once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

WORDS = (
    "the river house of a small town has many old trees and people walk there every day to see "
    "water light stone bridge market bread who made king ship letter north answer"
).split()


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--model", required=True, help="folder of a small instruct model")
    cli.add_argument("--prompts", type=int, default=20)
    cli.add_argument("--dtype", default="float32")
    cli.add_argument("--gpu-memory-utilization", type=float, default=0.2)
    cli.add_argument("--out", type=Path, help="JSON file to write as well")
    arguments = cli.parse_args()
    llm = start(arguments)
    prompts = make_prompts(arguments.model, arguments.prompts)

    def one_by_one(what: str, ratio: float | None) -> list[Answer]:
        console = Console(stderr=True)
        return [ask(llm, [prompt], ratio)[0] for prompt in track(prompts, what, console=console)]

    plain = one_by_one("plain vLLM", None)
    one_by_one("storing chunks", 0.15)  # they are computed and stored behind the answer
    again = ask(llm, prompts, None)
    alone = one_by_one("ratio 1.0", 1.0)
    together = ask(llm, prompts, 1.0)
    found = {}
    for name, answers in (
        ("plain vLLM, all at once", again),
        ("ratio 1.0, one at a time", alone),
        ("ratio 1.0, all at once", together),
    ):
        same = sum(a.token_ids == b.token_ids for a, b in zip(plain, answers, strict=True))
        filled = sum(bool(a.report.get("loaded_bytes")) for a in answers)
        found[name] = {"prompts": len(prompts), "equal": same, "blended": filled}
        print(f"{name}: {same} of {len(prompts)} answers equal, {filled} blended")
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    wrong = [a for a in alone if not a.report.get("loaded_bytes")]
    if wrong or [a.token_ids for a in alone] != [a.token_ids for a in plain]:
        sys.exit("not equal")


class Answer:
    def __init__(self, output: Any) -> None:
        self.token_ids = tuple(output.outputs[0].token_ids)
        self.report: dict[str, Any] = (output.kv_transfer_params or {}).get("kvweave", {})


def start(arguments: argparse.Namespace) -> Any:
    from vllm import LLM

    settings = {
        "kv_cache": {
            "gpu_kv_pool_gb": 0.5,
            "cpu_kv_pool_gb": 0.0,
            "ssd_cache_max_gb": 0.0,
            "plan_loads": False,
        }
    }
    return LLM(
        arguments.model,
        dtype=arguments.dtype,
        enforce_eager=True,
        max_model_len=2048,
        gpu_memory_utilization=arguments.gpu_memory_utilization,
        worker_cls="kvweave.integrations.vllm.worker_class.KvweaveWorker",
        kv_transfer_config={
            "kv_connector": "KvweaveConnector",
            "kv_connector_module_path": "kvweave.integrations.vllm.connector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"kvweave": settings},
        },
    )


def make_prompts(model: str, count: int) -> list[Any]:
    from transformers import AutoTokenizer

    from kvweave.prompt import ChunkRegistry, Message, PromptBuilder

    builder = PromptBuilder(AutoTokenizer.from_pretrained(model), registry=ChunkRegistry())
    system = "You are a careful reader. Answer the question from the passages only, shortly. " * 4
    prompts = []
    for seed in range(count):
        draw = random.Random(seed)
        passages = [
            f"Passage {n}. " + " ".join(draw.choice(WORDS) for _ in range(50)) + ".\n"
            for n in range(4)
        ]
        question = f"What does the {draw.choice(WORDS)} have to do with the {draw.choice(WORDS)}?"
        prompts.append(
            builder.build([Message("system", system), Message("user", (*passages, question))])
        )
    return prompts


def ask(llm: Any, prompts: list[Any], ratio: float | None) -> list[Answer]:
    """Greedy answers; without a ratio from plain vLLM, nothing of an earlier one reused."""
    from vllm import SamplingParams

    from kvweave.integrations.vllm.marks import PromptMarks

    requests, params = [], []
    for prompt in prompts:
        request: dict[str, Any] = {"prompt_token_ids": list(prompt.token_ids)}
        extra = None
        if ratio is None:
            request["cache_salt"] = f"plain {random.random()}"
        else:
            extra = {
                "kv_transfer_params": PromptMarks.of(prompt, recompute_ratio=ratio).to_params()
            }
        requests.append(request)
        params.append(SamplingParams(temperature=0, max_tokens=24, extra_args=extra))
    return [Answer(output) for output in llm.generate(requests, params, use_tqdm=False)]


if __name__ == "__main__":
    main()
