"""The whole script, on a tiny model: it learns, and what it writes can be merged."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
)

from kvweave.models.reader.merge import merge_adapter

pytest.importorskip("peft")

from training import mixture, train

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def base(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        dtype=torch.bfloat16,
    )
    folder = tmp_path / "base"
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def run(base: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A short run with these options beside; returns its folder's results."""
    monkeypatch.setattr(mixture, "LONGEST_TOTAL", 400)
    monkeypatch.setattr(mixture, "LONGEST_AT_FIRST", 300)

    def run(out: Path, *options: str) -> dict[str, Any]:
        fixed = f"--base {base} --out {out} --device cpu --batch 1 --tokens 600"
        fixed += " --evaluation-documents 1 --workers 0"
        monkeypatch.setattr(sys, "argv", ["train", *fixed.split(), *options])
        train.main()
        results: dict[str, Any] = json.loads((out / "results.json").read_text())
        return results

    return run


def test_a_run_writes_an_adapter_and_its_results(run: Run, base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = run(out, "--steps", "2")
    (only,) = results["runs"]
    assert only["steps"] == 2
    assert only["training_documents"] >= 2
    assert set(results["scores"]) == set(results["documents"])
    score = results["scores"]["entities"]["all"]
    assert score["asked"] >= 1
    assert 0 <= score["exact_match"] <= 1

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = model.model.layers[0].self_attn.q_proj.weight.clone()
    merge_adapter(model, out)
    assert not torch.equal(model.model.layers[0].self_attn.q_proj.weight, before)


def test_a_run_goes_on_from_an_adapter(run: Run, tmp_path: Path) -> None:
    first, still, second = (tmp_path / name for name in ("first", "still", "second"))
    run(first, "--steps", "2")
    run(still, "--steps", "1", "--start", str(first), "--rate", "0")
    results = run(second, "--steps", "1", "--start", str(first), "--seed", "1")

    def weights(folder: Path) -> dict[str, torch.Tensor]:
        return load_file(folder / "adapter_model.safetensors")

    begun = weights(first)
    assert all(torch.equal(weight, begun[name]) for name, weight in weights(still).items())
    assert any(not torch.equal(weight, begun[name]) for name, weight in weights(second).items())
    assert [(run["steps"], run["seed"]) for run in results["runs"]] == [(2, 0), (1, 1)]


def test_the_rate_rises_and_falls_to_zero() -> None:
    steps = 200
    rates = [train._share_of_rate(step + 1, step / steps) for step in range(steps + 1)]
    assert rates[0] == pytest.approx(1 / train.WARM_UP_STEPS)
    peak = rates.index(max(rates))
    assert 0 < peak <= train.WARM_UP_STEPS
    assert rates == sorted(rates[: peak + 1]) + sorted(rates[peak + 1 :], reverse=True)
    assert rates[-1] == pytest.approx(0)


def test_a_training_ends_when_its_time_is_over(tokenizer: PreTrainedTokenizerBase) -> None:
    args = argparse.Namespace(steps=100, seconds=10.0, batch=1, tokens=200, seed=0, start=None)
    steps = train.Steps(tokenizer, args)
    assert steps.progress(50) == 0.5
    steps.spend(8.0)
    assert [steps.progress(step) for step in (50, 90)] == [0.8, 0.9]
    steps.spend(11.0)
    assert steps.progress(50) == 1
