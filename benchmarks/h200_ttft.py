"""Time to first token on a GPU, vLLM against kvweave on vLLM, for the shape of a large model.

    python benchmarks/h200_ttft.py --out ttft.json
    python benchmarks/h200_ttft.py --shape tiny --lengths 512 --dtype float32 --out /dev/stdout

Random weights: what is timed does not depend on them. Every request is 64 tokens of system prompt,
8 chunks and 64 tokens of question; its time is that of one call that generates one token, with
nothing else running. Per length, after everything has been warmed up, in turn and `--rounds` times:

- `shuffled`: vLLM with its prefix cache, chunks in an order not seen before
- `same order`: vLLM with its prefix cache, the same prompt but for the question: the floor
- kvweave, chunks in an order not seen before, for each ratio

and all kvweave arms again for each tier, in a process of its own, with that tier alone; from the
ssd, which is far slower than the others, three times and at ratio 0.15 only.

With `--profiled` as for a model whose retrieving heads are known (`kvweave profile`): eight heads,
as deep in the model as those of SmolLM2. Without, all heads in the middle are watched.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# The engine in this process: no time between processes is in the figures, for any arm.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 4096,
    },
    "mistral-7b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 32768,
    },
    "yi-34b": {
        "hidden_size": 7168,
        "intermediate_size": 20480,
        "num_hidden_layers": 60,
        "num_attention_heads": 56,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 64000,
    },
}
#: The same layers as Llama-3-70B, but a quarter of them.
SHAPES["llama-70b-quarter"] = {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 20,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
}
#: Of SmolLM2's profile: in which of 30 layers the eight heads are.
HEAD_LAYERS = (8, 15, 17, 17, 17, 18, 18, 19)
CHUNKS = 8
SYSTEM_TOKENS = QUESTION_TOKENS = 64
TIERS = ("gpu", "cpu", "ssd")
WARM_UPS = 8


def main() -> None:
    arguments = parse()
    if arguments.tier is not None:
        measure(arguments)
        return
    results: dict[str, Any] = {}
    for tier in arguments.tiers:
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "part.json"
            command = [sys.executable, __file__, *sys.argv[1:], "--tier", tier]
            subprocess.run([*command, "--out", str(part)], check=True)
            measured = json.loads(part.read_text())
        results.setdefault("setup", measured.pop("setup"))
        results.setdefault("vllm", {}).update(measured.pop("vllm", {}))
        results.setdefault("kvweave", {})[tier] = measured["kvweave"]
        write(results, arguments.out)
    print(table(results))


def parse() -> argparse.Namespace:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--out", type=Path, required=True, help="JSON file to write")
    cli.add_argument("--shape", choices=SHAPES, default="mistral-7b")
    cli.add_argument("--dtype", default="bfloat16")
    cli.add_argument("--lengths", type=int, nargs="+", default=[2048, 6000, 16000, 32000])
    cli.add_argument("--ratios", type=float, nargs="+", default=[0.05, 0.10, 0.15, 0.20])
    cli.add_argument("--tiers", nargs="+", choices=TIERS, default=list(TIERS))
    cli.add_argument("--storage", choices=["auto", "int8", "fp8"], default="auto")
    cli.add_argument("--profiled", action="store_true", help="as with a profile of the model")
    cli.add_argument("--rounds", type=int, default=7)
    cli.add_argument("--profile", action="store_true", help="print where one fill's time goes")
    cli.add_argument("--tier", choices=TIERS, help=argparse.SUPPRESS)
    return cli.parse_args()


def measure(arguments: argparse.Namespace) -> None:
    """All arms with chunk KV in one tier; the arms of vLLM alone with the first."""
    import torch

    bench = Bench(arguments)
    results: dict[str, Any] = {"setup": bench.setup(), "vllm": {}, "kvweave": {}}
    for length in arguments.lengths:
        workload = Workload(length, SHAPES[arguments.shape]["vocab_size"])
        if arguments.tier == arguments.tiers[0]:
            results["vllm"][length] = bench.plain(workload)
        results["kvweave"][length] = bench.blended(workload)
        write(results, arguments.out)
    if arguments.profile and torch.cuda.is_available():
        bench.profile(Workload(arguments.lengths[-1], SHAPES[arguments.shape]["vocab_size"]))


class Workload:
    """Prompts of one length over one set of chunks."""

    def __init__(self, tokens: int, vocab: int) -> None:
        self._random = random.Random(tokens)
        self._vocab = vocab
        self.system = self.ids(SYSTEM_TOKENS)
        each = (tokens - SYSTEM_TOKENS - QUESTION_TOKENS) // CHUNKS
        self.chunks = [self.ids(each) for _ in range(CHUNKS)]
        self._seen = {tuple(range(CHUNKS))}

    def ids(self, count: int) -> tuple[int, ...]:
        return tuple(self._random.randrange(10, self._vocab) for _ in range(count))

    def prompt(self, *, shuffled: bool) -> Any:
        """A prompt with a new question, its chunks in an order not used before, or the first."""
        from kvweave.prompt import Prompt, Segment

        order = tuple(range(CHUNKS))
        while shuffled and order in self._seen:
            order = tuple(self._random.sample(range(CHUNKS), CHUNKS))
        self._seen.add(order)
        segments = [Segment("system", self.system)]
        segments += [Segment("chunk", self.chunks[i], str(i)) for i in order]
        segments.append(Segment("fresh", self.ids(QUESTION_TOKENS)))
        return Prompt(tuple(segments), self.system)


class Bench:
    """vLLM in this process, with kvweave's connector and one tier."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from vllm import LLM

        self._arguments = arguments
        self._folder = tempfile.TemporaryDirectory()
        longest = max(arguments.lengths)
        sizes = {"gpu": 0.0, "cpu": 0.0, "ssd": 0.0}
        sizes[arguments.tier] = arguments_gb(arguments)
        settings = {
            "kv_cache": {
                "gpu_kv_pool_gb": sizes["gpu"],
                "cpu_kv_pool_gb": sizes["cpu"],
                "ssd_cache_max_gb": sizes["ssd"],
                "ssd_cache_dir": str(Path(self._folder.name) / "kv"),
                "storage_dtype": arguments.storage,
                "plan_loads": False,  # what is asked for is measured, worthwhile or not
            }
        }
        folder = model_folder(arguments.shape, Path(self._folder.name), longest)
        if arguments.profiled:
            write_profile(arguments.shape, folder, Path(self._folder.name))
        started = time.perf_counter()
        self._llm = LLM(
            str(folder),
            load_format="dummy",
            skip_tokenizer_init=True,
            dtype=arguments.dtype,
            max_model_len=longest + 256,
            gpu_memory_utilization=0.85,
            compilation_config=compilation(),
            worker_cls="kvweave.integrations.vllm.worker_class.KvweaveWorker",
            kv_transfer_config={
                "kv_connector": "KvweaveConnector",
                "kv_connector_module_path": "kvweave.integrations.vllm.connector",
                "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": {"kvweave": settings},
            },
        )
        self._start_seconds = time.perf_counter() - started

    def setup(self) -> dict[str, Any]:
        import torch
        import vllm

        on_gpu = torch.cuda.is_available()
        return {
            "vllm": vllm.__version__,
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if on_gpu else "cpu",
            "shape": self._arguments.shape,
            "dtype": self._arguments.dtype,
            "storage": self._arguments.storage,
            "profiled": self._arguments.profiled,
            "compilation": compilation(),
            "rounds": self._arguments.rounds,
            "start_seconds": round(self._start_seconds, 1),
        }

    def plain(self, workload: Workload) -> dict[str, Any]:
        """vLLM alone: everything new, another order, the same order."""
        arms: dict[str, list[float]] = {"cold": [], "shuffled": [], "same order": []}
        self._time(workload.prompt(shuffled=False))
        for _ in range(2):  # kernels for these sizes
            self._time(workload.prompt(shuffled=True))
            self._time(workload.prompt(shuffled=False))
        for _ in range(self._arguments.rounds):
            unseen = Workload(len(workload.prompt(shuffled=False)), 4000)
            unseen.system = workload.ids(SYSTEM_TOKENS)
            unseen.chunks = [workload.ids(len(chunk)) for chunk in workload.chunks]
            arms["cold"].append(self._time(unseen.prompt(shuffled=False))[0])
            arms["shuffled"].append(self._time(workload.prompt(shuffled=True))[0])
            self._time(workload.prompt(shuffled=False))  # it may have been pushed out
            arms["same order"].append(self._time(workload.prompt(shuffled=False))[0])
        return {name: summary(times) for name, times in arms.items()}

    def blended(self, workload: Workload) -> dict[str, Any]:
        """kvweave at each ratio, and where the time goes."""
        for _ in range(WARM_UPS):  # a disk may need several until all is written
            _, report = self._time(
                workload.prompt(shuffled=True), ratio=0.15, tokens=2 * CHUNKS + 8
            )
            if all(chunk["tier"] == self._arguments.tier for chunk in report.get("chunks", ())):
                break
            time.sleep(1)
        found: dict[str, Any] = {}
        slow = self._arguments.tier == "ssd"
        for ratio in [0.15] if slow else self._arguments.ratios:
            for _ in range(WARM_UPS // 2):
                _, report = self._time(workload.prompt(shuffled=True), ratio=ratio, tokens=4)
            times = [
                self._time(workload.prompt(shuffled=True), ratio=ratio)[0]
                for _ in range(3 if slow else self._arguments.rounds)
            ]
            parts = [
                self._time(workload.prompt(shuffled=True), ratio=ratio, tokens=4)[1]["time_ms"]
                for _ in range(1 if slow else 3)
            ]
            missed = sum(chunk["tier"] != self._arguments.tier for chunk in report["chunks"])
            if missed:
                raise SystemExit(f"{missed} chunks do not lie in the {self._arguments.tier} tier")
            found[f"{ratio:g}"] = summary(times) | {
                "computed_tokens": report["forced"] + report["selected"],
                "parts_ms": {
                    part: round(statistics.median(p[part] for p in parts), 1)
                    for part in ("lookup", "load", "probe", "compute")
                },
            }
        return found

    def profile(self, workload: Workload) -> None:
        """Print the kernels of one blended request."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        self._time(workload.prompt(shuffled=True), ratio=0.15, tokens=4)
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        with profile(activities=activities) as profiler:
            self._time(workload.prompt(shuffled=True), ratio=0.15)
            torch.cuda.synchronize()
        averages = profiler.key_averages()
        print(
            averages.table(sort_by="self_cuda_time_total", row_limit=22, max_name_column_width=60)
        )
        print(averages.table(sort_by="self_cpu_time_total", row_limit=16, max_name_column_width=60))

    def _time(
        self, prompt: Any, *, ratio: float | None = None, tokens: int = 1
    ) -> tuple[float, dict[str, Any]]:
        """Seconds to generate `tokens` tokens; with a ratio, blended. And the report, if any."""
        from vllm import SamplingParams

        from kvweave.integrations.vllm.marks import PARAMS_KEY, PromptMarks

        extra = None
        if ratio is not None:
            marks = PromptMarks.of(prompt, recompute_ratio=ratio)
            extra = {"kv_transfer_params": marks.to_params()}
        params = SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, extra_args=extra
        )
        request = {"prompt_token_ids": list(prompt.token_ids)}
        started = time.perf_counter()
        (output,) = self._llm.generate([request], params, use_tqdm=False)
        seconds = time.perf_counter() - started
        return seconds, (output.kv_transfer_params or {}).get(PARAMS_KEY, {})


def arguments_gb(arguments: argparse.Namespace) -> float:
    """Room for the chunk KV of all lengths, and a tenth more."""
    shape = SHAPES[arguments.shape]
    itemsize = 4 if arguments.dtype == "float32" else 2
    per_token = 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"]
    per_token *= shape["head_dim"] * itemsize
    return 1.1 * sum(length + 1000 for length in arguments.lengths) * per_token / 1e9


def compilation() -> dict[str, Any]:
    """Decoding steps as CUDA graphs, nothing compiled: vLLM starts in seconds."""
    import torch

    if not torch.cuda.is_available():
        return {"mode": 0, "cudagraph_mode": "NONE"}
    return {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4]}


def model_folder(shape: str, folder: Path, longest: int) -> Path:
    """A folder that holds the config of a model of this shape, and no weights."""
    config = {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "hidden_act": "silu",
        "max_position_embeddings": longest + 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e6,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    path = folder / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config | SHAPES[shape]))
    return path


def write_profile(shape: str, folder: Path, cache: Path) -> None:
    """Make up a profile of the model in `folder`, to be found under `cache`."""
    import torch
    from safetensors.torch import save_file

    from kvweave.models import profile_json, profile_path

    os.environ["XDG_CACHE_HOME"] = str(cache)
    save_file(
        {"none": torch.zeros(1)}, folder / "model.safetensors"
    )  # profiles are kept by weights
    layers, heads = (SHAPES[shape][f"num_{what}"] for what in ("hidden_layers", "attention_heads"))
    found = {
        (layer * layers // 30, i * heads // len(HEAD_LAYERS)) for i, layer in enumerate(HEAD_LAYERS)
    }
    path = profile_path(folder)
    path.parent.mkdir(parents=True)
    path.write_text(profile_json(tuple(sorted(found)), {}))


def summary(times: list[float]) -> dict[str, Any]:
    """Median, least and most, in ms."""
    ms = [round(seconds * 1e3, 1) for seconds in times]
    return {"median_ms": statistics.median(ms), "min_ms": min(ms), "max_ms": max(ms)}


def write(results: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(results, indent=1) + "\n")


def table(results: dict[str, Any]) -> str:
    """Medians in ms, and how many times faster than `shuffled`."""
    lines = []
    for length, plain in results["vllm"].items():
        shuffled = plain["shuffled"]["median_ms"]
        arms = ", ".join(f"{name} {arm['median_ms']:.0f}" for name, arm in plain.items())
        lines.append(f"{length} tokens: vLLM {arms}")
        for tier, by_length in results["kvweave"].items():
            arms = ", ".join(
                f"{ratio}: {arm['median_ms']:.1f} ({shuffled / arm['median_ms']:.1f}x)"
                for ratio, arm in by_length[length].items()
            )
            lines.append(f"  kvweave, {tier}: {arms}")
            at = by_length[length].get("0.15")
            if at:
                parts = dict(at["parts_ms"])
                # The rest: vLLM's steps and its own pass over the last token.
                parts["engine"] = round(at["median_ms"] - parts["probe"] - parts["compute"], 1)
                lines.append(f"    at 0.15: {parts}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
