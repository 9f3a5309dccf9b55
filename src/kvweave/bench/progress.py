"""Shows how far a run is, with the mean TTFT of each arm so far."""

from __future__ import annotations

from collections import defaultdict
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kvweave.bench.arms import ARMS
from kvweave.bench.plan import Phase
from kvweave.bench.runner import StepResult
from kvweave.bench.table import PHASE_TITLES

PLAIN_EVERY = 10
"""Questions between two lines where the output is no terminal."""


class RunProgress:
    """A line that is kept up to date on a terminal, and one every few questions elsewhere."""

    def __init__(self, console: Console, questions: int) -> None:
        self._console = console
        self._total = questions
        self._done = 0
        self._phase: Phase | None = None
        self._times: dict[str, list[float]] = defaultdict(list)
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[means]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=questions, means="")

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def on_answer(self, result: StepResult, arm: str) -> None:
        """Take note of an answer, or of its failure."""
        if result.phase != self._phase:
            self._phase = result.phase
            self._times.clear()
        outcome = result.arms[arm]
        if outcome.measurement is not None:
            self._times[arm].append(outcome.measurement.ttft * 1e3)
        else:
            self._console.print(
                f"question {result.step.index + 1}, {arm}: {outcome.error}",
                style="yellow",
                markup=False,
            )
        if len(result.arms) == len(result.step.arms):
            self._done += 1
            if not self._console.is_terminal and (
                self._done % PLAIN_EVERY == 0 or self._done == self._total
            ):
                self._console.print(f"{self._label()} {self._done}/{self._total}: {self._means()}")
        self._bar.update(
            self._task,
            completed=self._done,
            description=f"{self._label()}, {arm:<6}",
            means=self._means(),
        )

    def _label(self) -> str:
        return PHASE_TITLES[self._phase] if self._phase else ""

    def _means(self) -> str:
        means = [
            f"{arm} {sum(times) / len(times):,.0f}"
            for arm in ARMS
            if (times := self._times.get(arm))
        ]
        return f"TTFT {', '.join(means)} ms" if means else ""
