"""Which models are opened up, and which are refused by name."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from kvweave.blend import check_layers
from kvweave.models import LlamaFamily, UnsupportedModel

SMALL = dict(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)


def test_layer_by_layer_equals_the_model_itself(tiny_model):
    check_layers(LlamaFamily(tiny_model), lambda ids: tiny_model(ids[None]).logits[0])


def test_a_misread_layer_is_found_out(tiny_llama):
    blendable = LlamaFamily(tiny_llama)
    blendable.scale *= 1.1
    with pytest.raises(UnsupportedModel, match="self-check failed"):
        check_layers(blendable, lambda ids: tiny_llama(ids[None]).logits[0])


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (lambda: GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2)), "'gpt2'"),
        (lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=64)), "sliding"),
        (
            lambda: Qwen2ForCausalLM(
                Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=8, max_window_layers=1)
            ),
            "sliding",
        ),
        (
            lambda: LlamaForCausalLM(
                LlamaConfig(
                    **SMALL,
                    rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
                )
            ),
            "'dynamic'",
        ),
    ],
    ids=["gpt2", "mistral-sliding", "qwen2-sliding", "dynamic-rope"],
)
def test_what_is_not_understood_is_refused_by_name(model, named):
    with pytest.raises(UnsupportedModel, match=named):
        LlamaFamily(model())


def test_qkv_shapes_are_heads_first(tiny_model):
    model = LlamaFamily(tiny_model)
    q, k, v = model.qkv(0, model.embed(torch.arange(5)))
    assert q.shape == (model.heads, 5, model.head_dim)
    assert k.shape == v.shape == (model.kv_heads, 5, model.head_dim)
