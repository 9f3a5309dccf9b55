"""`kvweave bench quality` from settings to files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kvweave.bench.dataset import read_dataset
from kvweave.bench.errors import BenchError
from kvweave.bench.knowledge import KnowledgeSpec, generate
from kvweave.bench.quality.laboratory import Laboratory
from kvweave.bench.quality.records import FULL_ARM, RecordFile
from kvweave.bench.quality.report import write_report
from kvweave.bench.quality.run import Arm, PromptSet, measure
from kvweave.bench.quality.summary import ArmQuality, summarize
from kvweave.blend import SELECTORS
from kvweave.engine.loading import load_model
from kvweave.models.embedded import resolve_model

RECORDS_NAME = "answers.jsonl"
MEMORY_BYTES = 2 * 10**9
"""For chunk KV: what is in it need not be computed again for the next question."""


@dataclass(frozen=True, slots=True)
class QualitySettings:
    """What to compare, on which prompts.

    Attributes:
        chunk_tokens, seeds: of the made-up knowledge bases; each pair gives `questions` questions.
        dataset: JSONL file of questions to ask instead.
        out: folder of the records and the report; a run goes on with the records it finds there.
    """

    model: str
    selectors: Sequence[str]
    ratios: Sequence[float]
    chunk_tokens: Sequence[int]
    seeds: Sequence[int]
    questions: int
    chunks: int
    dataset: Path | None
    out: Path
    threads: int | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in self.selectors:
            if name not in SELECTORS:
                raise BenchError(f"there is no selector {name!r}; known: {', '.join(SELECTORS)}")
        for ratio in self.ratios:
            if not 0 <= ratio <= 1:
                raise BenchError(f"a ratio lies between 0 and 1: {ratio} does not")

    @property
    def arms(self) -> list[Arm]:
        """Selectors and ratios. `none` chooses nothing at any ratio, so it has one."""
        return [
            (name, 0.0 if name == "none" else ratio)
            for name in self.selectors
            for ratio in (self.ratios[:1] if name == "none" else self.ratios)
        ]


def run_quality(
    settings: QualitySettings, console: Console
) -> tuple[dict[str, Any], list[ArmQuality]]:
    """Measure what is not on record in `settings.out` yet, and write the report there.

    The report is also written when the run is broken off, over what there is.

    Returns:
        What was run, and the figures.

    Raises:
        KvweaveError: wrong settings, an unusable data set, no such model.
    """
    given = read_dataset(settings.dataset) if settings.dataset else None
    try:
        settings.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"--out {settings.out}: {error.strerror}") from None
    if settings.threads:
        torch.set_num_threads(settings.threads)
    with console.status("loading the model"):
        source = resolve_model(settings.model)
        loaded = load_model(source, settings.model, settings.dtype)
        laboratory = Laboratory(loaded, MEMORY_BYTES)
    file = RecordFile(settings.out / RECORDS_NAME, laboratory.identity)
    if given is not None and settings.dataset is not None:
        sets = [PromptSet(settings.dataset.name, given[: settings.questions])]
    else:
        sets = [
            PromptSet(f"{settings.chunks} chunks of {length} tokens/{seed}", questions)
            for length in settings.chunk_tokens
            for seed in settings.seeds
            for spec in [KnowledgeSpec(settings.questions, settings.chunks, length, seed=seed)]
            for questions in [generate(spec, laboratory.count_tokens)]
        ]
    facts: dict[str, Any] = {
        "model": settings.model,
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
    }
    arms = settings.arms
    try:
        with Progress(
            TextColumn("questions"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        ) as bar:
            task = bar.add_task("", total=sum(len(prompts.questions) for prompts in sets))
            measure(laboratory, sets, arms, file, lambda: bar.advance(task))
    finally:
        names = {prompts.name for prompts in sets}
        wanted = [
            record
            for record in file.records
            if record.prompts in names and (record.arm in arms or record.arm == FULL_ARM)
        ]
        rows = summarize(wanted)
        write_report(settings.out, facts, rows)
    return facts, rows
