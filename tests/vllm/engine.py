"""vLLM as the tests use it: prompts in, token ids out, and a look inside."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvweave.integrations.vllm.launch import WORKER_CLASS
from kvweave.integrations.vllm.marks import PARAMS_KEY, PromptMarks
from kvweave.prompt import ChunkRegistry, Message, Prompt, PromptBuilder

WORDS = (
    "the river house of a small town has many old trees and people walk there every day to see "
    "water light stone bridge market bread who made king ship letter north answer"
).split()
#: More than one page of vLLM on a CPU (128 tokens).
SYSTEM = "You are a careful reader. Answer the question from the passages only, shortly. " * 10
STEPS = 500


@dataclass(frozen=True)
class Answer:
    token_ids: tuple[int, ...]
    report: dict[str, Any]
    cached_tokens: int


def passage(number: int) -> str:
    draw = random.Random(number)
    return f"Passage {number}. " + " ".join(draw.choice(WORDS) for _ in range(45)) + ".\n"


class Engine:
    """One vLLM engine with kvweave's connector, in this process."""

    def __init__(self, llm: Any, folder: Path) -> None:
        self.llm = llm
        self.folder = folder
        """Where the ssd tier lies."""
        self._builder = PromptBuilder(llm.get_tokenizer(), registry=ChunkRegistry())

    def prompt(self, passages: Sequence[int], question: str = "", system: str = SYSTEM) -> Prompt:
        draw = random.Random(sum(passages))
        question = question or f"What does the {draw.choice(WORDS)} have to do with it?"
        parts = (*map(passage, passages), question)
        return self._builder.build([Message("system", system), Message("user", parts)])

    def ask(
        self,
        prompts: Sequence[Prompt],
        ratio: float | None = None,
        *,
        tokens: int = 16,
        shared: bool = False,
        **options: Any,
    ) -> list[Answer]:
        """Greedy answers, all at once.

        Without a ratio as plain vLLM gives them; only with `shared` do they use and leave pages in
        the exact-prefix cache of all.
        """
        from vllm import SamplingParams

        requests, params = [], []
        for prompt in prompts:
            request: dict[str, Any] = {"prompt_token_ids": list(prompt.token_ids)}
            extra = None
            if ratio is not None:
                marks = PromptMarks.of(prompt, recompute_ratio=ratio, **options)
                extra = {"kv_transfer_params": marks.to_params()}
            if not shared:
                request["cache_salt"] = uuid.uuid4().hex
            requests.append(request)
            params.append(
                SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, extra_args=extra)
            )
        return [
            Answer(
                tuple(output.outputs[0].token_ids),
                (output.kv_transfer_params or {}).get(PARAMS_KEY, {}),
                output.num_cached_tokens or 0,
            )
            for output in self.llm.generate(requests, params, use_tqdm=False)
        ]

    def warm(self, prompts: Sequence[Prompt]) -> None:
        """Have all chunks of these prompts stored."""
        for prompt in prompts:
            self.ask([prompt], 0.15, tokens=1)
        self.drain()

    def drain(self) -> None:
        """Let the engine work until nothing is left to do."""
        for _ in range(STEPS):
            if not self.core.scheduler.has_requests():
                return
            self.llm.llm_engine.engine_core.get_output()
        raise AssertionError("the engine does not come to rest")

    def forget_everything(self) -> None:
        self.llm.reset_prefix_cache()
        self.worker._cache.clear()

    @property
    def core(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core

    @property
    def scheduler(self) -> Any:
        """The connector's half in the scheduler."""
        return self.core.scheduler.connector._scheduler

    @property
    def worker(self) -> Any:
        """The connector's half in the worker."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        return get_kv_transfer_group()._worker


def connector_options(folder: Path, **kv_cache: Any) -> dict[str, Any]:
    settings = {
        "gpu_kv_pool_gb": 0.3,
        "cpu_kv_pool_gb": 0.0,
        "ssd_cache_max_gb": 0.3,
        "ssd_cache_dir": str(folder),
        "plan_loads": False,
    }
    return {
        "worker_cls": WORKER_CLASS,
        "kv_transfer_config": {
            "kv_connector": "KvweaveConnector",
            "kv_connector_module_path": "kvweave.integrations.vllm.connector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"kvweave": {"kv_cache": settings | kv_cache}},
        },
    }


def start_engine(model: str, folder: Path, **options: Any) -> Engine:
    from vllm import LLM

    arguments = {
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 1024,
        "max_num_seqs": 32,
        "num_gpu_blocks_override": 160,
        "disable_log_stats": True,
    }
    return Engine(LLM(model, **(arguments | connector_options(folder) | options)), folder)
