"""`kvweave bench rag`: questions over retrieved chunks, answered in several ways and compared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from kvweave import __version__
from kvweave.bench.client import BenchClient
from kvweave.bench.dataset import read_dataset, write_dataset
from kvweave.bench.errors import BenchError
from kvweave.bench.knowledge import KnowledgeSpec, generate
from kvweave.bench.machine import machine_facts
from kvweave.bench.plan import make_plan
from kvweave.bench.prepare import TokenScale, sample_questions, warm_up
from kvweave.bench.progress import RunProgress
from kvweave.bench.questions import Question, overlap_share
from kvweave.bench.report import Report
from kvweave.bench.runner import Run, run_plan
from kvweave.bench.server import own_server
from kvweave.config import Config, load_config
from kvweave.models.embedded import READER

DEFAULT_QUESTIONS = 50


@dataclass(frozen=True, slots=True)
class RagSettings:
    """What `kvweave bench rag` was asked for.

    Attributes:
        questions: how many to ask, of a data set the first ones; None: 50, or the whole data set.
        prompt_tokens: length of a generated prompt in tokens, about.
        overlap: share of a question's chunks that earlier ones had, in generated questions.
        steady: questions asked again at the end, when all chunks are cached; None: all.
        dataset: JSONL file with other questions.
        base_url: a server that runs already; None starts one.
        config: configuration file of the server that is started.
    """

    out: Path
    arms: tuple[str, ...]
    questions: int | None
    prompt_tokens: int
    chunks: int
    overlap: float
    seed: int
    steady: int | None
    dataset: Path | None = None
    base_url: str | None = None
    config: Path | None = None


def run_rag(settings: RagSettings, console: Console) -> Report:
    """Run the benchmark and write its files into `settings.out`; what goes on goes to `console`.

    A run that breaks off, on Ctrl-C too, is written as far as it came and marked incomplete.

    Raises:
        KvweaveError: it can't start: wrong settings, an unusable data set, no server.
    """
    # What can be wrong without a server is found out before one is started.
    questions = read_dataset(settings.dataset) if settings.dataset else None
    if questions is None:
        _spec(settings)
    config = None if settings.base_url else _config(settings)
    _make_folder(settings.out)
    with _server(settings, config, console) as url, BenchClient(url) as client:
        facts = _facts(settings, config, client)
        started = time.monotonic()
        if questions is None:
            questions = _generate(settings, client)
        questions = questions[: settings.questions]
        write_dataset(settings.out / "dataset.jsonl", questions)
        with console.status("warming up"):
            request = warm_up(client, settings.arms, sample_questions(questions))
        plan = make_plan(
            questions,
            settings.arms,
            # Of a server that ran before nobody knows what it has cached.
            cold=request.isolate and settings.base_url is None,
            steady=settings.steady,
            seed=settings.seed,
        )
        with RunProgress(console, len(plan)) as progress:
            run = run_plan(client, plan, request, progress.on_answer)
        facts |= {
            "questions": len(questions),
            "chunks": max(len(question.chunks) for question in questions),
            "overlap": overlap_share(questions),
            "isolated_arms": request.isolate,
            "max_tokens": request.max_tokens,
            "temperature": 0,
            "seconds": time.monotonic() - started,
        }
    report = Report.of(facts | _reported(run), run)
    report.write(settings.out)
    return report


def _config(settings: RagSettings) -> Config:
    """For the server that is started; the reader is served unless a model is configured."""
    config = load_config(settings.config)
    if "model_id" in config.model.model_fields_set:
        return config
    reader = config.model.model_copy(update={"model_id": READER.name})
    return config.model_copy(update={"model": reader})


def _spec(settings: RagSettings, overhead: int = 0) -> KnowledgeSpec:
    """What to generate, where prompts have `overhead` tokens beside their chunks."""
    return KnowledgeSpec(
        questions=DEFAULT_QUESTIONS if settings.questions is None else settings.questions,
        chunks=settings.chunks,
        chunk_tokens=round((settings.prompt_tokens - overhead) / settings.chunks),
        overlap=settings.overlap,
        seed=settings.seed,
    )


def _generate(settings: RagSettings, client: BenchClient) -> list[Question]:
    scale = TokenScale(client)
    return generate(_spec(settings, scale.overhead), scale.count)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"--out {out}: {error.strerror}; name a folder to write into") from None


@contextmanager
def _server(settings: RagSettings, config: Config | None, console: Console) -> Iterator[str]:
    if config is None:
        assert settings.base_url is not None
        yield settings.base_url
        return
    with console.status("starting a server") as status, own_server(config, settings.out) as url:
        status.stop()
        yield url


def _facts(settings: RagSettings, config: Config | None, client: BenchClient) -> dict[str, Any]:
    """What is known before the first question."""
    model = client.model  # fails here if there is no server
    machine = machine_facts()
    return {
        "version": __version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": model,
        "base_url": settings.base_url,
        "arms": list(settings.arms),
        "seed": settings.seed,
        "dataset": str(settings.dataset) if settings.dataset else None,
        "prompt_tokens_asked": None if settings.dataset else settings.prompt_tokens,
        "overlap_asked": None if settings.dataset else settings.overlap,
        "steady": settings.steady,
        "dtype": _dtype(config, machine) if config else None,
        "threads": config.engine.threads or machine["cores"] if config else None,
        "server": _server_settings(config) if config else None,
        "machine": machine,
    }


def _dtype(config: Config, machine: dict[str, Any]) -> str:
    on_cpu = machine["gpu"] is None
    return "float32" if config.model.dtype == "auto" and on_cpu else config.model.dtype


def _server_settings(config: Config) -> dict[str, Any]:
    """The configuration without what the benchmark chooses itself."""
    return config.model_dump(mode="json", exclude={"kv_cache": {"ssd_cache_dir"}, "server": True})


def _reported(run: Run) -> dict[str, Any]:
    """Selector and mean ratio, as the server says it used them where it blended."""
    used = [
        blend.measurement.reuse
        for step in run.steps
        if (blend := step.arms.get("blend")) and blend.measurement
    ]
    ratios = [
        reuse["recompute_ratio"] for reuse in used if reuse.get("recompute_ratio") is not None
    ]
    return {
        "selector": next((reuse["selector"] for reuse in used if reuse.get("selector")), None),
        "recompute_ratio": sum(ratios) / len(ratios) if ratios else None,
    }
