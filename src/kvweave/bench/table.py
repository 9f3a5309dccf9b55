"""The figures as tables: rows that the terminal and the Markdown report share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from kvweave.bench.plan import Phase
from kvweave.bench.summary import ArmSummary

PHASE_TITLES: dict[Phase, str] = {
    "cold": "cold",
    "first_pass": "first pass",
    "steady": "steady state",
}
PHASE_MEANING: dict[Phase, str] = {
    "cold": "no chunk of the prompt is cached",
    "first_pass": "cached is what earlier questions brought",
    "steady": "every chunk was seen before, in another order",
}
NOTHING = "-"
LEGEND = (
    "speed-up: mean TTFT of full over the arm's, with its 95 % interval. F1, EM: against the "
    "accepted answers. found: an accepted answer stands in the text. same, F1 full: against the "
    "answer of full. KL (nats), top-1: first answer token, full against arm."
)


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and how an arm's cell is written."""

    title: str
    cell: Callable[[ArmSummary], str]


@dataclass(frozen=True, slots=True)
class Section:
    """A titled group of columns."""

    title: str
    columns: tuple[Column, ...]


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value * 100:.0f}%"


def _kl(value: float | None) -> str:
    if value is None:
        return NOTHING
    return "0" if value == 0 else f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"


def _speedup(arm: ArmSummary) -> str:
    if arm.speedup is None:
        return NOTHING
    gain = arm.speedup
    return f"{gain.mean:.2f} [{gain.low:.2f}, {gain.high:.2f}]"


def _hits(name: str) -> Callable[[ArmSummary], str]:
    return lambda arm: _percent(arm.hit_rates[name] if arm.hit_rates else None)


SPEED = Section(
    "Time to first token in ms, and where the chunk tokens lay",
    (
        Column("mean", lambda arm: _number(arm.ttft_ms.mean, 0)),
        Column("p50", lambda arm: _number(arm.ttft_ms.p50, 0)),
        Column("p95", lambda arm: _number(arm.ttft_ms.p95, 0)),
        Column("speed-up [95 %]", _speedup),
        Column("gpu", _hits("gpu")),
        Column("cpu", _hits("cpu")),
        Column("ssd", _hits("ssd")),
        Column("missed", _hits("missed")),
    ),
)
QUALITY = Section(
    "Answers, and how close they are to the full prefill's",
    (
        Column("F1", lambda arm: _number(arm.f1, 3)),
        Column("EM", lambda arm: _number(arm.em, 2)),
        Column("found", lambda arm: _number(arm.contains, 2)),
        Column("same", lambda arm: _percent(arm.agreement)),
        Column("F1 full", lambda arm: _number(arm.agreement_f1, 3)),
        Column("KL", lambda arm: _kl(arm.kl)),
        Column("top-1", lambda arm: _percent(arm.top1)),
    ),
)
SECTIONS = (SPEED, QUALITY)

Phases = Mapping[Phase, Mapping[str, ArmSummary]]


def answer_count(arms: Mapping[str, ArmSummary]) -> int:
    """How many questions were answered, by the arm that answered most."""
    return max(arm.answers for arm in arms.values())


def print_tables(console: Console, phases: Phases) -> None:
    """Both sections as tables, the phases one below the other."""
    for section in SECTIONS:
        console.print(section.title, style="bold")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column(no_wrap=True)
        for column in section.columns:
            table.add_column(column.title, justify="right", no_wrap=True)
        for phase, arms in phases.items():
            table.add_row(f"[dim]{phase.replace('_', ' ')}, {answer_count(arms)}[/dim]")
            for name, arm in arms.items():
                style = "bold" if name == "blend" else None
                table.add_row(
                    f"  {name}", *(column.cell(arm) for column in section.columns), style=style
                )
            table.add_section()
        console.print(table)
    console.print(LEGEND, style="dim")
