"""Eviction policies: the order in which a full tier gives up its chunks. One policy a file."""

from __future__ import annotations

from kvweave.kv.eviction.base import EvictionPolicy
from kvweave.kv.eviction.cost import GreedyDualSizeFrequency
from kvweave.kv.eviction.lfu import LFU
from kvweave.kv.eviction.lru import LRU
from kvweave.kv.eviction.s3fifo import S3FIFO

POLICIES: dict[str, type[EvictionPolicy]] = {
    "lru": LRU,
    "lfu": LFU,
    "s3fifo": S3FIFO,
    "cost": GreedyDualSizeFrequency,
}


def make_policy(name: str) -> EvictionPolicy:
    """The policy called `name`.

    Raises:
        ValueError: unknown name.
    """
    try:
        return POLICIES[name]()
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise ValueError(f"unknown eviction policy {name!r}; known: {known}") from None


__all__ = [
    "LFU",
    "LRU",
    "POLICIES",
    "S3FIFO",
    "EvictionPolicy",
    "GreedyDualSizeFrequency",
    "make_policy",
]
