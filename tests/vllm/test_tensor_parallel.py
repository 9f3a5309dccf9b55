"""Two ranks, each with half of the heads: the same answers as one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kvweave.models import profile_json, profile_path
from kvweave.models.embedded import resolve_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with random weights, whose heads two ranks can share; SmolLM2's cannot be."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("model")
    tokenizer = AutoTokenizer.from_pretrained(resolve_model("smollm2"))
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    network = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)  # attention far from uniform, so that the chosen set matters
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def answers(model: Path, folder: Path, ranks: int) -> dict[str, list[list[int]]]:
    """What `ask.py` has to say, from a process of its own: ranks are processes of vLLM's."""
    out = folder / f"{ranks}.json"
    command = [
        sys.executable,
        "-m",
        "tests.vllm.ask",
        str(model),
        str(folder),
        str(ranks),
        str(out),
    ]
    root = str(Path(__file__).parents[2])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([root, *sys.path]),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "XDG_CACHE_HOME": str(folder),
    }
    subprocess.run(command, check=True, cwd=root, env=environment, timeout=400)
    return json.loads(out.read_text())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("heads", [None, ((1, 0), (2, 3), (2, 1), (3, 2))])
def test_two_ranks_answer_like_one(
    model: Path, tmp_path: Path, heads: tuple[tuple[int, int], ...] | None, monkeypatch
):
    """Each rank has two of the four heads: some watched layers have heads on one rank alone."""
    if heads:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        path = profile_path(model)
        path.parent.mkdir(parents=True)
        path.write_text(profile_json(heads, {}))
    one, two = answers(model, tmp_path, 1), answers(model, tmp_path, 2)
    assert two["matched"] == one["matched"] and min(two["matched"]) > 0
    assert two["all"] == two["plain"] == one["plain"]
    assert two["blended"] == one["blended"]
    assert one["blended"] != one["reused"]  # so the chosen set did matter
