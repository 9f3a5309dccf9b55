"""The figure of a run: times, quality, and the course of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kvweave.bench.plan import Phase
from kvweave.bench.runner import StepResult
from kvweave.bench.summary import ArmSummary
from kvweave.bench.table import PHASE_TITLES, Phases

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"full": "#5f6672", "prefix": "#8d6fb8", "reuse": "#d9822b", "blend": "#127f74"}
PLOT_NAME = "plot"
KL_FLOOR = 1e-5
"""Where a KL of zero stands on the logarithmic axis."""


def save_plots(phases: Phases, steps: Sequence[StepResult], out: Path) -> list[Path]:
    """Draw the run and save it as PNG and SVG in `out`; nothing if nothing was answered."""
    if not phases:
        return []
    shown: Phase = "first_pass" if "first_pass" in phases else next(iter(phases))
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(
        {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    ):
        figure = Figure(figsize=(11, 6.6), layout="constrained")
        grid = figure.add_gridspec(2, 3, width_ratios=(2.2, 1, 1), height_ratios=(1.1, 1))
        names = list(phases[shown])
        times, f1, kl = (figure.add_subplot(grid[0, column]) for column in range(3))
        _draw_times(times, phases, steps, names)
        _draw_f1(f1, phases[shown], names)
        _draw_kl(kl, steps, shown, phases[shown], names)
        _draw_course(figure.add_subplot(grid[1, :]), steps, names)
        files = [out / f"{PLOT_NAME}.{kind}" for kind in ("png", "svg")]
        for file in files:
            figure.savefig(file, dpi=160)
    return files


def _ttfts(steps: Iterable[StepResult], phase: Phase, arm: str) -> list[float]:
    return [
        result.measurement.ttft * 1e3
        for step in steps
        if step.phase == phase
        and (result := step.arms.get(arm)) is not None
        and result.measurement is not None
    ]


def _label_arms(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _draw_times(
    axes: Axes, phases: Phases, steps: Sequence[StepResult], names: Sequence[str]
) -> None:
    """Each answer as a dot, the phases as bands of each arm, with the medians as bars."""
    _label_arms(axes, names)
    rng = np.random.default_rng(0)
    band = 0.8 / len(phases)
    for row, name in enumerate(names):
        for number, (phase, arms) in enumerate(phases.items()):
            if name not in arms:
                continue
            times = _ttfts(steps, phase, name)
            centre = row - 0.4 + band * (number + 0.5)
            jitter = rng.uniform(-0.3, 0.3, len(times)) * band
            axes.scatter(times, centre + jitter, s=11, alpha=0.4, lw=0, color=COLOURS[name])
            median = arms[name].ttft_ms.p50
            axes.vlines(median, centre - band * 0.42, centre + band * 0.42, COLOURS[name], lw=2.2)
            gain = arms[name].speedup
            text = PHASE_TITLES[phase] + (f", {gain.mean:.1f}x" if gain else "")
            axes.annotate(
                text,
                (max(times), centre),
                (7, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
                color=COLOURS[name],
            )
    axes.set_xlim(left=0)
    axes.margins(x=0.2)
    axes.set_xlabel("ms; a dot is an answer, a bar the median, 2x: twice as fast as full")
    axes.set_title("Time to first token", loc="left", weight="bold")


def _draw_f1(axes: Axes, arms: Mapping[str, ArmSummary], names: Sequence[str]) -> None:
    _label_arms(axes, names)
    values = [arms[name].f1 for name in names]
    bars = axes.barh(range(len(names)), values, 0.55, color=[COLOURS[name] for name in names])
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    if "full" in arms:
        axes.axvline(arms["full"].f1, color=COLOURS["full"], lw=1, ls=(0, (4, 3)))
    axes.set_xlim(0, max(0.05, *values) * 1.25)
    axes.set_xlabel("mean; dashed: full")
    axes.set_title("Token F1 of the answers", loc="left", weight="bold")


def _draw_kl(
    axes: Axes,
    steps: Sequence[StepResult],
    phase: Phase,
    arms: Mapping[str, ArmSummary],
    names: Sequence[str],
) -> None:
    """Each answer as a dot, the mean as a diamond."""
    compared = [name for name in names if name != "full" and arms[name].kl is not None]
    _label_arms(axes, compared or names)
    axes.set_title("KL against full", loc="left", weight="bold")
    if not compared:
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes)
        axes.set_xticks([])
        return
    rng = np.random.default_rng(0)
    for row, name in enumerate(compared):
        values = [
            max(kl, KL_FLOOR)
            for step in steps
            if step.phase == phase
            and (result := step.arms.get(name)) is not None
            and (kl := result.kl) is not None
        ]
        jitter = row + rng.uniform(-0.2, 0.2, len(values))
        axes.scatter(values, jitter, s=11, alpha=0.4, lw=0, color=COLOURS[name])
        mean = max(arms[name].kl or 0.0, KL_FLOOR)
        axes.plot([mean], [row], "D", ms=6, color=COLOURS[name], mec="white")
        axes.annotate(
            f"{arms[name].kl:.2g}", (mean, row), (0, 9), textcoords="offset points", ha="center"
        )
    axes.set_xscale("log")
    axes.set_xlabel("nats, first answer token; diamond: mean")


def _draw_course(axes: Axes, steps: Sequence[StepResult], names: Sequence[str]) -> None:
    """TTFT of each answer over the run, the phases side by side."""
    for name in names:
        points = [
            (number, result.measurement.ttft * 1e3)
            for number, step in enumerate(steps)
            if (result := step.arms.get(name)) is not None and result.measurement is not None
        ]
        axes.plot(*zip(*points, strict=True), "o-", ms=2.5, lw=1, color=COLOURS[name], label=name)
    starts: dict[Phase, int] = {}
    for number, step in enumerate(steps):
        starts.setdefault(step.phase, number)
    for phase, start in starts.items():
        if start:
            axes.axvline(start - 0.5, color="#b8bcc4", lw=1)
        axes.annotate(
            PHASE_TITLES[phase],
            (start - 0.4, 1),
            (3, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=8,
            color="#5f6672",
        )
    axes.set_xlim(-0.5, len(steps) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("TTFT, ms")
    axes.set_xlabel("questions in the order they were asked")
    axes.legend(ncols=len(names), frameon=False, loc="upper right", bbox_to_anchor=(1, 1.16))
