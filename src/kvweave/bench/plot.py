"""The figure of a run: times, quality, and the course of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvweave.bench.plan import Phase
from kvweave.bench.runner import ArmResult, StepResult
from kvweave.bench.summary import ArmSummary
from kvweave.bench.table import PHASE_TITLES, Phases

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"full": "#5f6672", "prefix": "#8d6fb8", "reuse": "#d9822b", "blend": "#127f74"}
MUTED = "#5f6672"
PLOT_NAME = "plot"
KL_FLOOR = 1e-6
"""Where a KL of zero stands on the logarithmic axis."""
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 10,
    "svg.hashsalt": PLOT_NAME,  # equal runs give equal files
}


def save_plots(
    config: Mapping[str, Any], phases: Phases, steps: Sequence[StepResult], out: Path
) -> list[Path]:
    """Draw the run and save it as PNG and SVG in `out`; nothing if nothing was answered."""
    if not phases:
        return []
    shown: Phase = "first_pass" if "first_pass" in phases else next(iter(phases))
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 7), layout="constrained")
        figure.suptitle(_title(config), fontsize=11, x=0.01, ha="left")
        grid = figure.add_gridspec(2, 3, width_ratios=(2.4, 1, 1), height_ratios=(1.2, 1))
        times, f1, kl = (figure.add_subplot(grid[0, column]) for column in range(3))
        names = list(phases[shown])
        for axes in (times, f1, kl):
            axes.set_yticks(range(len(names)), names if axes is times else [])
            axes.set_ylim(len(names) - 0.45, -0.55)
            axes.tick_params(axis="y", length=0)
        _draw_times(times, phases, steps, names)
        _draw_f1(f1, phases[shown], names)
        _draw_kl(kl, [step for step in steps if step.phase == shown], phases[shown], names)
        f1.set_xlabel(f"mean token F1, {PHASE_TITLES[shown]}")
        kl.set_xlabel(f"KL in nats, {PHASE_TITLES[shown]}")
        _draw_course(figure.add_subplot(grid[1, :]), steps, names)
        files = [out / f"{PLOT_NAME}.{kind}" for kind in ("png", "svg")]
        for file in files:
            figure.savefig(file, dpi=160)
    return files


def _title(config: Mapping[str, Any]) -> str:
    tokens = config["prompt_tokens"]
    parts = [
        str(config["model"]),
        f"prompts of {tokens['mean']:,.0f} tokens in {config['chunks']} chunks",
    ]
    if config["recompute_ratio"] is not None:
        parts.append(f"{config['recompute_ratio']:.0%} recomputed ({config['selector']})")
    return ", ".join(parts)


def _results(steps: Sequence[StepResult], arm: str) -> Iterator[tuple[int, ArmResult, float]]:
    """Number of the step, result and TTFT in ms of each answer of `arm`."""
    for number, step in enumerate(steps):
        result = step.arms.get(arm)
        if result is not None and result.measurement is not None:
            yield number, result, result.measurement.ttft * 1e3


def _draw_times(
    axes: Axes, phases: Phases, steps: Sequence[StepResult], names: Sequence[str]
) -> None:
    """Each answer as a dot, the phases as bands of each arm, with the medians as bars."""
    rng = np.random.default_rng(0)
    band = 0.84 / len(phases)
    for row, name in enumerate(names):
        for number, (phase, arms) in enumerate(phases.items()):
            if name not in arms:
                continue
            of_phase = [step for step in steps if step.phase == phase]
            times = [time for _, _, time in _results(of_phase, name)]
            centre = row - 0.42 + band * (number + 0.5)
            jitter = rng.uniform(-0.3, 0.3, len(times)) * band
            axes.scatter(times, centre + jitter, s=12, alpha=0.45, lw=0, color=COLOURS[name])
            median = arms[name].ttft_ms.p50
            axes.vlines(median, centre - band * 0.42, centre + band * 0.42, COLOURS[name], lw=2.5)
            gain = arms[name].speedup
            axes.text(
                1.01,
                centre,
                PHASE_TITLES[phase] + (f"  {gain.mean:.1f}x" if gain else ""),
                transform=axes.get_yaxis_transform(),
                va="center",
                fontsize=8,
                color=COLOURS[name],
                weight="bold" if name == "blend" else "normal",
            )
        if row:
            axes.axhline(row - 0.5, color="#e3e5e9", lw=0.8)
    axes.set_xlim(left=0)
    axes.set_xlabel("ms. Dot: one answer; bar: median; 2x: twice as fast as full (means)")
    axes.set_title("Time to first token")


def _draw_f1(axes: Axes, arms: Mapping[str, ArmSummary], names: Sequence[str]) -> None:
    values = [arms[name].f1 for name in names]
    bars = axes.barh(range(len(names)), values, 0.5, color=[COLOURS[name] for name in names])
    axes.bar_label(bars, fmt="%.3f", padding=3, fontsize=8)
    if "full" in arms:
        axes.axvline(arms["full"].f1, color=MUTED, lw=1, ls=(0, (4, 3)))
    axes.set_xlim(0, max(0.05, *values) * 1.3)
    axes.set_title("Answers")


def _draw_kl(
    axes: Axes, steps: Sequence[StepResult], arms: Mapping[str, ArmSummary], names: Sequence[str]
) -> None:
    """Each answer as a dot, the mean as a diamond."""
    axes.set_title("First token against full")
    axes.set_xscale("log")
    axes.set_xlim(KL_FLOOR / 3, 30)
    rng = np.random.default_rng(0)
    for row, name in enumerate(names):
        mean = arms[name].kl
        if mean is None or name == "full":
            text = "reference" if name == "full" else "not measured"
            place = axes.get_yaxis_transform()
            axes.text(0.5, row, text, transform=place, ha="center", va="center", color=MUTED)
            continue
        values = [result.kl for _, result, _ in _results(steps, name) if result.kl is not None]
        jitter = row + rng.uniform(-0.22, 0.22, len(values))
        axes.scatter(
            np.maximum(values, KL_FLOOR), jitter, s=12, alpha=0.45, lw=0, color=COLOURS[name]
        )
        at = max(mean, KL_FLOOR)
        axes.plot([at], [row], "D", ms=7, color=COLOURS[name], mec="white")
        axes.annotate(
            f"{mean:.2g}", (at, row), (0, 9), textcoords="offset points", ha="center", fontsize=8
        )


def _draw_course(axes: Axes, steps: Sequence[StepResult], names: Sequence[str]) -> None:
    """TTFT of each answer over the run, the phases side by side."""
    starts: dict[Phase, int] = {}
    for number, step in enumerate(steps):
        starts.setdefault(step.phase, number)
    bounds = [*starts.values(), len(steps)]
    for name in names:
        for first, end in pairwise(bounds):
            points = [(at, time) for at, _, time in _results(steps, name) if first <= at < end]
            label = name if first == 0 else None
            axes.plot(
                [at for at, _ in points],
                [time for _, time in points],
                "o-",
                ms=3,
                lw=1.1,
                color=COLOURS[name],
                label=label,
            )
    for phase, start in starts.items():
        if start:
            axes.axvline(start - 0.5, color="#b8bcc4", lw=1)
        axes.annotate(
            PHASE_TITLES[phase],
            (start - 0.5, 1),
            (3, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=8,
            color=MUTED,
        )
    axes.set_xlim(-0.5, len(steps) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("time to first token, ms")
    axes.set_xlabel("questions in the order they were asked")
    axes.legend(ncols=len(names), frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
