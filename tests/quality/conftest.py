"""A tiny model with a real tokenizer, and everything the checks need around it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kvweave.blend import SELECTORS, kv_layout
from kvweave.engine.loading import LoadedModel
from kvweave.kv import KVFormat
from kvweave.models import LlamaFamily
from kvweave.prompt import ChunkRegistry, PromptBuilder
from kvweave.quality import Gate, GateSettings, ReferenceModel


@pytest.fixture(scope="session")
def tiny(smollm2: LoadedModel) -> LoadedModel:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(smollm2.tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    return LoadedModel("tiny", model, LlamaFamily(model), smollm2.tokenizer, "tiny", frozenset({2}))


@pytest.fixture
def make_gate(tiny: LoadedModel) -> Iterator[object]:
    def make(
        settings: GateSettings | None = None,
        loaded: LoadedModel = tiny,
    ) -> Gate:
        settings = settings or GateSettings("tiny", "auto", "query_attention", 0.15, 0.3)
        return Gate(
            loaded.blendable,
            ReferenceModel(loaded.model),
            PromptBuilder(loaded.tokenizer, registry=ChunkRegistry()),
            KVFormat(kv_layout(loaded.blendable), settings.storage_dtype),  # type: ignore[arg-type]
            SELECTORS[settings.selector],
            settings,
        )

    yield make
