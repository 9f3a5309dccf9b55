"""A tiny model with a real tokenizer, and everything the checks need around it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvweave.blend import SELECTORS, kv_layout
from kvweave.engine.loading import LoadedModel
from kvweave.kv import KVFormat
from kvweave.prompt import ChunkRegistry, PromptBuilder
from kvweave.quality import Gate, GateSettings, ReferenceModel


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
