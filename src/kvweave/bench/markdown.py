"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvweave.bench.arms import ARMS
from kvweave.bench.table import (
    NOTHING,
    PHASE_MEANING,
    PHASE_TITLES,
    SECTIONS,
    Phases,
    Section,
    answer_count,
)


def render_markdown(config: Mapping[str, Any], phases: Phases, plots: Sequence[Path]) -> str:
    """The report on a run: figures, plot, and how they came about."""
    blocks = ["# kvweave bench rag", _summary(config)]
    if not config["complete"]:
        blocks.append(f"**Incomplete**: {config['stopped']}. The figures cover what was asked.")
    blocks += [f"![Time to first token and quality by arm]({p.name})" for p in plots[:1]]
    for section in SECTIONS:
        blocks += [f"## {section.title}", *(_table(section, phases))]
    if kinds := _kinds(phases):
        blocks += ["## By kind of question, first pass", kinds]
    blocks += ["## How it was measured", _method(config), "## Set-up", _setup(config)]
    return "\n\n".join(blocks) + "\n"


def _summary(config: Mapping[str, Any]) -> str:
    tokens = config["prompt_tokens"]
    size = f", prompts of {tokens['mean']:,.0f} tokens" if tokens else ""
    return (
        f"{config['questions']} questions over {config['chunks']} chunks each{size}; "
        f"{config['overlap'] * 100:.0f} % of a question's chunks were in earlier questions, at "
        f"other positions. Model {config['model']}."
    )


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _table(section: Section, phases: Phases) -> list[str]:
    titles = [column.title for column in section.columns]
    blocks = []
    for phase, arms in phases.items():
        rows = [_row(["arm", *titles]), _row(["---", *["---:"] * len(titles)])]
        rows += [
            _row([name, *(column.cell(arm) for column in section.columns)])
            for name, arm in arms.items()
        ]
        count = answer_count(arms)
        label = f"{PHASE_TITLES[phase].capitalize()}, {count} question{'s' if count > 1 else ''}"
        blocks += [f"{label} ({PHASE_MEANING[phase]}):", "\n".join(rows)]
    return blocks


def _kinds(phases: Phases) -> str:
    arms = phases.get("first_pass", {})
    kinds = sorted({kind for arm in arms.values() for kind in arm.kinds})
    if not kinds:
        return ""
    rows = [_row(["kind", *(f"{name}: F1 / KL" for name in arms)])]
    rows.append(_row(["---", *["---:"] * len(arms)]))
    for kind in kinds:
        cells = []
        for arm in arms.values():
            scores = arm.kinds.get(kind, {})
            f1, kl = scores.get("f1"), scores.get("kl")
            cells.append(f"{_three(f1)} / {_three(kl)}")
        rows.append(_row([kind.replace("_", " "), *cells]))
    return "\n".join(rows)


def _three(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"


def _method(config: Mapping[str, Any]) -> str:
    arms = "; ".join(f"`{name}`: {ARMS[name].summary}" for name in config["arms"])
    lines = [
        f"Arms: {arms}. Every question is put to all arms with the same prompt before the next "
        "one; which arm comes first changes from question to question.",
        "Requests go over HTTP through the `openai` client, one at a time, streamed, at "
        f"temperature 0 with at most {config['max_tokens']} tokens. TTFT is the time from sending "
        "the request to the first piece of text, on the client's clock.",
        "Before each request the server's background work on missing chunks has ended, so it "
        "slows no other arm down.",
        "Before anything is measured, each arm answers two other questions.",
    ]
    if config["isolated_arms"]:
        lines.append(
            "Chunks that are new in a question enter the cache after its last arm, so every arm "
            "finds only what earlier questions brought."
        )
    else:
        lines.append(
            "This server can't keep new chunks out of the cache until all arms have asked, so "
            "where two arms use chunks, the later one finds what the earlier one brought. There is "
            "no cold phase for the same reason."
        )
    if config["base_url"] is None:
        lines.append("The server was started for this run, with an empty cache.")
    else:
        lines.append(
            f"The server at {config['base_url']} ran before. What it had cached is not known, so "
            "there is no cold phase."
        )
    lines += [
        "speed-up: mean TTFT of `full` over the arm's, with the 95 % interval of a paired "
        "bootstrap over questions. gpu, cpu, ssd, missed: shares of the looked-up chunk tokens.",
        "F1, EM: token F1 and exact match against the accepted answers, SQuAD normalisation. "
        "found: an accepted answer stands in the text. same, F1 full: share of answers equal to "
        "those of `full`, and token F1 against them. KL, top-1: the first answer token's "
        "distribution against `full`, in nats, and whether the likeliest token is the same.",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _setup(config: Mapping[str, Any]) -> str:
    machine = config["machine"]
    facts = {
        "model": config["model"],
        "dtype": config["dtype"],
        "recompute ratio": _three(config["recompute_ratio"]),
        "selector": config["selector"],
        "engine threads": config["threads"],
        "seed": config["seed"],
        "data set": config["dataset"] or "generated",
        "processor": f"{machine['cpu']}, {machine['cores']} cores",
        "gpu": machine["gpu"],
        "memory": f"{machine['memory_bytes'] / 1e9:.1f} GB",
        "torch, transformers": f"{machine['torch']}, {machine['transformers']}",
        "kvweave": config["version"],
        "started": config["started"],
        "duration": f"{config['seconds']:,.0f} s",
    }
    rows = [_row(["", ""]), _row(["---", "---"])]
    rows += [_row([name, NOTHING if fact is None else fact]) for name, fact in facts.items()]
    return "\n".join(rows)
