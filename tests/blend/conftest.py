"""Prompts with cached chunks, and the independent reference they are held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from kvweave.blend import (
    SELECTORS,
    BlendResult,
    Placement,
    PromptLayout,
    blended_prefill,
    compute_chunk_kv,
    kv_layout,
)
from kvweave.kv import ChunkCache, ChunkLease, KVFormat, MemoryTier, chunk_ref, make_policy
from kvweave.models import LlamaFamily


@dataclass
class Bench:
    """One model, blended on one side and run as `transformers` runs it on the other."""

    model: PreTrainedModel

    def __post_init__(self) -> None:
        self.blendable = LlamaFamily(self.model)
        fmt = KVFormat(kv_layout(self.blendable))
        tier = MemoryTier("gpu", fmt.nbytes(4000), make_policy("lru"), fmt)
        self._cache = ChunkCache([tier], fmt)

    def ids(self, count: int, seed: int) -> tuple[int, ...]:
        generator = torch.Generator().manual_seed(seed)
        vocab = self.model.config.vocab_size
        return tuple(torch.randint(3, vocab, (count,), generator=generator).tolist())

    def lease(self, ids: tuple[int, ...], prefix: tuple[int, ...] = ()) -> ChunkLease:
        ref = chunk_ref("model", "", prefix, ids)
        if not self._cache.contains(ref):
            prefix_kv = None
            if prefix:
                self.lease(prefix)
                prefix_kv = self._cache.read(chunk_ref("model", "", (), prefix))
            self._cache.put(ref, compute_chunk_kv(self.blendable, ids, prefix_kv))
        lease = self._cache.lookup(ref).lease
        assert lease is not None
        return lease

    def layout(
        self, segments: Sequence[tuple[str, tuple[int, ...]]], prefix: tuple[int, ...] = ()
    ) -> PromptLayout:
        """Segments are ("system" | "cached" | "missing" | "fresh", ids), in prompt order."""
        placements, token_ids = [], []
        after_prefix = not prefix
        for kind, ids in segments:
            start = len(token_ids)
            if kind == "system":
                placements.append(Placement(self.lease(ids), start, True, is_chunk=False))
            elif kind == "cached":
                placements.append(Placement(self.lease(ids, prefix), start, after_prefix))
            after_prefix = kind == "system"
            token_ids += ids
        return PromptLayout(token_ids, placements)

    def blend(
        self,
        layout: PromptLayout,
        selector: str = "query_attention",
        ratio: float = 0.15,
        overlap: bool = True,
    ) -> tuple[BlendResult, DynamicCache]:
        filled = DynamicCache()

        def keep(layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
            filled.update(keys[None].clone(), values[None].clone(), layer)

        result = blended_prefill(
            self.blendable, layout, SELECTORS[selector], ratio, keep, overlap=overlap
        )
        return result, filled

    @torch.no_grad()
    def next_logits(self, layout: PromptLayout, filled: DynamicCache) -> torch.Tensor:
        """What the model itself predicts after the prompt, reading the KV that was filled in."""
        last = layout.token_ids[-1:]
        return self.model(last[None], cache=filled, use_cache=True).logits[0, -1]

    @torch.no_grad()
    def full_prefill(self, layout: PromptLayout) -> tuple[torch.Tensor, DynamicCache]:
        """The reference: `transformers` computes every token. Logits after the prompt, and KV."""
        cache = DynamicCache()
        logits = self.model(layout.token_ids[None], cache=cache, use_cache=True).logits[0, -1]
        return logits, cache


@pytest.fixture
def bench(tiny_model: PreTrainedModel) -> Bench:
    return Bench(tiny_model)


@pytest.fixture
def llama(tiny_llama: PreTrainedModel) -> Bench:
    return Bench(tiny_llama)


@pytest.fixture(scope="session")
def make_bench() -> type[Bench]:
    return Bench
