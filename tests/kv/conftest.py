"""Small chunk KV to store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kvweave.kv import ChunkKV, ChunkRef, KVLayout, chunk_ref

LAYOUT = KVLayout(layers=3, kv_heads=2, head_dim=8, dtype=torch.float32)


@pytest.fixture
def layout() -> KVLayout:
    return LAYOUT


@pytest.fixture(scope="session")
def make_ref() -> Callable[..., ChunkRef]:
    def make(seed: int, tokens: int = 10, **kwargs: object) -> ChunkRef:
        named = {"model_identity": "model", "tenant": "", "prefix_ids": (1, 2)} | kwargs
        return chunk_ref(token_ids=tuple(range(seed, seed + tokens)), **named)

    return make


@pytest.fixture(scope="session")
def make_chunk(make_ref: Callable[..., ChunkRef]) -> Callable[..., ChunkKV]:
    def make(seed: int, tokens: int = 10, dtype: torch.dtype = torch.float32) -> ChunkKV:
        ref = make_ref(seed, tokens)
        generator = torch.Generator().manual_seed(seed)
        kv = torch.randn(LAYOUT.shape(tokens), generator=generator).to(dtype)
        return ChunkKV(ref.key, ref.content, ref.token_ids, kv)

    return make
