"""Selectors by name. One file each; add one here to make it known everywhere."""

from __future__ import annotations

from kvweave.blend.selectors.base import Selection, Selector
from kvweave.blend.selectors.chunk_heads import ChunkHeads
from kvweave.blend.selectors.kv_deviation import KVDeviation
from kvweave.blend.selectors.none import NoTokens
from kvweave.blend.selectors.query_attention import QueryAttention
from kvweave.blend.selectors.random import RandomTokens
from kvweave.blend.selectors.sentences import Sentences

SELECTORS: dict[str, Selector] = {
    "none": NoTokens(),
    "random": RandomTokens(),
    "chunk_heads": ChunkHeads(),
    "kv_deviation": KVDeviation(),
    "query_attention": QueryAttention(),
    "sentences": Sentences(),
}

__all__ = ["SELECTORS", "Selection", "Selector"]
