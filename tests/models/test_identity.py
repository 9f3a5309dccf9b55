"""The model identity changes with everything that changes the KV, and with nothing else."""

from __future__ import annotations

import copy

import pytest
import torch

from kvweave.models import model_identity


@pytest.fixture
def tokenizer(smollm2):
    return copy.deepcopy(smollm2.tokenizer)


def test_identity_is_stable(tiny_llama, tokenizer):
    again = copy.deepcopy(tiny_llama)
    assert model_identity(tiny_llama, tokenizer) == model_identity(again, tokenizer)


def test_identity_ignores_the_name_of_the_folder(tiny_llama, tokenizer):
    moved = copy.deepcopy(tiny_llama)
    moved.config._name_or_path = "/elsewhere"
    assert model_identity(moved, tokenizer) == model_identity(tiny_llama, tokenizer)


def _nudge_weight(model, tokenizer):
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-3


def _other_dtype(model, tokenizer):
    model.to(torch.bfloat16)


def _other_rope(model, tokenizer):
    model.config.rope_parameters = {**model.config.rope_parameters, "rope_theta": 12345.0}


def _other_template(model, tokenizer):
    tokenizer.chat_template += " "


def _other_vocabulary(model, tokenizer):
    tokenizer.add_tokens(["<kvweave-test>"])


@pytest.mark.parametrize(
    "change", [_nudge_weight, _other_dtype, _other_rope, _other_template, _other_vocabulary]
)
def test_identity_changes_with(tiny_llama, tokenizer, change):
    before = model_identity(tiny_llama, tokenizer)
    model = copy.deepcopy(tiny_llama)
    change(model, tokenizer)
    assert model_identity(model, tokenizer) != before
