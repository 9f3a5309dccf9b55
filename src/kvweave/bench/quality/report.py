"""The figures of `kvweave bench quality` as tables, Markdown, JSON and a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table

from kvweave.bench.plot import MUTED, STYLE
from kvweave.bench.quality.records import FULL
from kvweave.bench.quality.summary import ArmQuality, Figure

PLOT_NAME = "frontier"
COLUMNS = (
    "selector",
    "ratio",
    "EM",
    "F1 kept",
    "KL",
    "top-1",
    "same",
    "own cost",
    "TTFT",
    "layers first",
)
ON_TERMINALS = tuple(name for name in COLUMNS if name not in ("same", "layers first"))
"""What fits into a line; the report has all."""
LEGEND = (
    "F1 kept: F1 over the full prefill's on the same questions. KL (nats), top-1: first answer "
    "token, against full. same: the whole answer. In brackets: the 95 % bootstrap interval over "
    "the questions. own cost: the selector's own time, in ms and as a share of a full prefill. "
    "TTFT: to the first token, as a share of a full prefill, KV in memory (medians). layers "
    "first: layers of cached KV that are read before the first layer is computed."
)
COLOURS = {
    "sentences": "#127f74",
    "query_attention": "#8d6fb8",
    "kv_deviation": "#d9822b",
    "chunk_heads": "#b8860b",
    "random": "#9aa1ab",
    "none": "#5f6672",
}


def print_quality(console: Console, rows: Sequence[ArmQuality]) -> None:
    """The tables, one for each kind of prompts."""
    for prompts in _prompts(rows):
        here = [row for row in rows if row.prompts == prompts]
        table = Table(box=box.SIMPLE_HEAD, title=_title(here), title_justify="left")
        for column in ON_TERMINALS:
            justify: Literal["left", "right"] = "left" if column == "selector" else "right"
            table.add_column(column, justify=justify, no_wrap=True)
        for row in here:
            cells = dict(zip(COLUMNS, _cells(row), strict=True))
            table.add_row(*(cells[column] for column in ON_TERMINALS))
        console.print(table)
    console.print(LEGEND, style="dim", markup=False)


def write_report(out: Path, facts: Mapping[str, Any], rows: Sequence[ArmQuality]) -> None:
    """Write report.md, result.json and the picture as PNG and SVG into `out`."""
    (out / "result.json").write_text(to_json(facts, rows) + "\n", encoding="utf-8")
    plotted = _plot(out, rows)
    lines = ["# kvweave bench quality", "", ", ".join(f"{k}: {v}" for k, v in facts.items()), ""]
    if plotted:
        lines += [f"![F1 kept against work]({PLOT_NAME}.png)", ""]
    for prompts in _prompts(rows):
        here = [row for row in rows if row.prompts == prompts]
        kinds = sorted({kind for row in here for kind in row.kinds})
        heads = [*COLUMNS, *kinds]
        lines += [f"## {_title(here)}", "", f"| {' | '.join(heads)} |"]
        lines.append("|---|" + "---:|" * (len(heads) - 1))
        for row in here:
            by_kind = [f"{row.kinds[kind]:.2f}" if kind in row.kinds else "" for kind in kinds]
            lines.append(f"| {' | '.join([*_cells(row), *by_kind])} |")
        lines.append("")
    lines += [LEGEND + " The last columns: F1 by kind of question.", ""]
    (out / "report.md").write_text("\n".join(lines), encoding="utf-8")


def to_json(facts: Mapping[str, Any], rows: Sequence[ArmQuality]) -> str:
    """All figures; what can't be said is null."""
    data = {"config": dict(facts), "arms": [asdict(row) for row in rows]}
    return json.dumps(_without_nan(data), indent=2)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _prompts(rows: Sequence[ArmQuality]) -> list[str]:
    return list(dict.fromkeys(row.prompts for row in rows))


def _title(rows: Sequence[ArmQuality]) -> str:
    asked = {row.questions for row in rows}
    number = f"{max(asked)}" if len(asked) == 1 else f"{min(asked)} to {max(asked)}"
    return f"{rows[0].prompts}, {number} questions"


def _cells(row: ArmQuality) -> list[str]:
    if row.selector == FULL:
        full = [f"F1 {row.f1.value:.3f}", "0", "100%", "100%", "-", "100%", "-"]
        return [FULL, "1.00", f"{row.em.value:.2f}", *full]
    return [
        row.selector,
        f"{row.ratio:.2f}",
        f"{row.em.value:.2f}",
        _with_interval(row.kept_f1),
        f"{row.kl.value:.3f}",
        f"{row.top1.value:.0%}",
        f"{row.same.value:.0%}",
        f"{row.probe_ms:,.0f} ms {row.probe_share:.1%}",
        f"{row.ttft_share:.0%}",
        str(row.layers_read),
    ]


def _with_interval(figure: Figure) -> str:
    if math.isnan(figure.value):
        return "-"
    return f"{figure.value:.3f} [{figure.low:.2f}, {figure.high:.2f}]"


def _plot(out: Path, rows: Sequence[ArmQuality]) -> bool:
    """F1 kept and KL against the ratio, a column for each kind of prompts."""
    names = _prompts(rows)
    arms = [row for row in rows if row.selector != FULL]
    if not arms:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import PercentFormatter

    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(4.6 * len(names) + 1, 6.4), layout="constrained")
        grid = canvas.subplots(2, len(names), sharex=True, sharey="row", squeeze=False)
        for column, prompts in enumerate(names):
            kept, kl = grid[0][column], grid[1][column]
            kept.set_title(_title([row for row in rows if row.prompts == prompts]))
            kept.axhline(1.0, color=MUTED, lw=0.8, ls=":")
            for selector in dict.fromkeys(row.selector for row in arms):
                line = sorted(
                    (r for r in arms if r.prompts == prompts and r.selector == selector),
                    key=lambda row: row.ratio,
                )
                colour = COLOURS.get(selector, MUTED)
                for axes, figures in (
                    (kept, [row.kept_f1 for row in line]),
                    (kl, [row.kl for row in line]),
                ):
                    ratios = [row.ratio for row in line]
                    values, lows, highs = (
                        [getattr(figure, part) for figure in figures]
                        for part in ("value", "low", "high")
                    )
                    axes.fill_between(ratios, lows, highs, color=colour, alpha=0.12, lw=0)
                    axes.vlines(ratios, lows, highs, color=colour, alpha=0.4, lw=1)
                    axes.plot(ratios, values, "o-", ms=4, color=colour, label=selector)
            kl.set_xlabel("share of the chunk tokens computed again")
            kl.xaxis.set_major_formatter(PercentFormatter(1.0))
        grid[0][0].set_ylabel("F1 kept of a full prefill's")
        grid[1][0].set_ylabel("KL of the first answer token, nats")
        grid[0][-1].legend(frameon=False, loc="lower right")
        for kind in ("png", "svg"):
            canvas.savefig(out / f"{PLOT_NAME}.{kind}", dpi=160)
    return True
