"""A made-up knowledge base with questions, generated from a seed."""

from __future__ import annotations

from kvweave.bench.knowledge.generate import (
    KIND_NAMES,
    MIN_CHUNK_TOKENS,
    MIN_CHUNKS,
    KnowledgeSpec,
    approximate_tokens,
    generate,
)

__all__ = [
    "KIND_NAMES",
    "MIN_CHUNKS",
    "MIN_CHUNK_TOKENS",
    "KnowledgeSpec",
    "approximate_tokens",
    "generate",
]
