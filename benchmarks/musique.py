"""Make a dataset for `kvweave bench` of questions with retrieved passages (MuSiQue's form).

    python benchmarks/musique.py musique_s.json --questions 20 --out musique.jsonl
    kvweave bench quality --dataset musique.jsonl --questions 20 --ratios 0.15

The input is a JSON list of `{"question", "answers": [..], "ctxs": [{"title", "text"}, ..]}`; each
of the `ctxs` becomes a chunk.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from kvweave.digest import digest_fields


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("source", type=Path, help="the JSON file")
    cli.add_argument("--questions", type=int, help="take so many; default: all")
    cli.add_argument("--out", type=Path, required=True, help="JSONL file to write")
    arguments = cli.parse_args()
    questions = json.loads(arguments.source.read_text(encoding="utf-8"))[: arguments.questions]
    with arguments.out.open("w", encoding="utf-8") as file:
        for question in questions:
            file.write(json.dumps(line(question), ensure_ascii=False) + "\n")
    print(f"{len(questions)} questions written to {arguments.out}")


def line(question: dict[str, Any]) -> dict[str, Any]:
    """The question as `kvweave bench` reads it; equal passages get equal ids."""
    texts = [f"{c['title']}\n{c['text']}".strip() + "\n" for c in question["ctxs"]]
    chunks = {digest_fields(text.encode())[:16]: text for text in texts}
    return {
        "question": question["question"],
        "answers": question["answers"],
        "chunks": [{"id": key, "text": text} for key, text in chunks.items()],
    }


if __name__ == "__main__":
    main()
