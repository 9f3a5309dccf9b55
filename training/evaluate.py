"""Exact match of greedy answers: `python -m training.evaluate --base FOLDER --adapter FOLDER`."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoTokenizer, PreTrainedModel

from kvweave.models.reader.merge import merge_adapter
from training.batches import EncodedDocument, Encoder, group_by_length, make_batch
from training.mixture import evaluation_sets
from training.model import answer_logits, load_base

SEED = 1
"""Of the evaluation sets, which are the same for every training."""
RESULTS = "results.json"

Score = dict[str, dict[str, float]]
"""For each kind of question and for `all`: number `asked`, and the share of `exact_match`."""


@torch.no_grad()
def exact_match(
    model: PreTrainedModel | PeftModel,
    documents: Sequence[EncodedDocument],
    *,
    device: torch.device,
    pad_id: int,
    tokens: int,
) -> Score:
    """How many answers greedy decoding gets right, token by token and with their end.

    One pass over the right answers tells: as long as the likeliest token is the right one, decoding
    goes on with just these tokens. An answer that is spelt with other tokens counts as wrong.
    """
    asked: Counter[str] = Counter()
    exact: Counter[str] = Counter()
    for group in group_by_length(documents, tokens):
        batch = make_batch(group, pad_id).to(device)
        answered = batch.targets != -100
        hit = torch.zeros_like(answered)
        hit[answered] = answer_logits(model, batch).argmax(-1) == batch.targets[answered]
        missed = answered & ~hit
        for row, kinds in enumerate(batch.kinds):
            wrong = set(batch.question_numbers[row][missed[row]].tolist())
            for number, kind in enumerate(kinds):
                for name in ("all", kind):
                    asked[name] += 1
                    exact[name] += number not in wrong
    return {
        name: {"asked": asked[name], "exact_match": round(exact[name] / asked[name], 4)}
        for name in sorted(asked)
    }


def evaluate_adapter(
    base: Path, adapter: Path, device: torch.device, *, documents: int, tokens: int
) -> dict[str, Any]:
    """Exact match on all sets, in fp32, with the weights as they are shipped.

    Args:
        documents: in each of the main sets.
        tokens: of one batch, about.
    """
    tokenizer = AutoTokenizer.from_pretrained(base, local_files_only=True)
    encoder = Encoder(tokenizer)
    model = load_base(base, torch.float32, device).eval()
    merge_adapter(model, adapter)
    model.bfloat16().float()  # the merged model is stored in bf16
    scores: dict[str, Score] = {}
    sizes: dict[str, int] = {}
    longest: dict[str, int] = {}
    for name, made in evaluation_sets(SEED, documents, encoder.count_tokens).items():
        encoded = [encoder.encode(document) for document in made]
        sizes[name] = len(encoded)
        longest[name] = max(document.longest_prompt for document in encoded)
        scores[name] = exact_match(
            model, encoded, device=device, pad_id=tokenizer.pad_token_id, tokens=tokens
        )
        shares = (f"{kind} {score['exact_match']:.3f}" for kind, score in scores[name].items())
        print(f"{name}: {', '.join(shares)}", flush=True)
    return {
        "evaluation_seed": SEED,
        "documents": sizes,
        "longest_prompt": longest,
        "scores": scores,
    }


def read_results(folder: Path) -> dict[str, Any]:
    """What is in the folder's results, empty where there are none."""
    path = folder / RESULTS
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return results


def write_results(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write `facts` into the folder's results, over what is there of the same name."""
    text = json.dumps(read_results(folder) | dict(facts), indent=1)
    (folder / RESULTS).write_text(text + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="training.evaluate", description=__doc__)
    add = parser.add_argument
    add("--base", type=Path, required=True, help="folder of the base model, as safetensors")
    add("--adapter", type=Path, required=True, help="its results.json is brought up to date")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--documents", type=int, default=256, help="documents of the main sets")
    add("--tokens", type=int, default=49_152, help="tokens of a batch, about")
    args = parser.parse_args()
    scores = evaluate_adapter(
        args.base,
        args.adapter,
        torch.device(args.device),
        documents=args.documents,
        tokens=args.tokens,
    )
    write_results(args.adapter, scores)


if __name__ == "__main__":
    main()
