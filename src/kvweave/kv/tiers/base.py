"""What every tier can do. The hierarchy is written against this alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from kvweave.kv.chunk import ChunkKV, ChunkLease, TierName
from kvweave.kv.identity import ChunkRef


@dataclass(frozen=True, slots=True)
class TierStats:
    """A tier's fill at one moment: chunks held, bytes really used, and the hard limit in bytes."""

    chunks: int
    used_bytes: int
    capacity_bytes: int


class Tier(Protocol):
    """One place where chunk KV lies, under a hard limit in bytes. Thread-safe.

    A tier may lose a chunk at any time (eviction, a broken disk); it never returns wrong bytes.
    """

    @property
    def name(self) -> TierName: ...

    def lease(self, ref: ChunkRef) -> ChunkLease | None:
        """The chunk stored under `ref.key`, pinned, or None; None too if its ids are others.

        Counts as a use for eviction.
        """

    def contains(self, key: str) -> bool:
        """Whether `key` is held. Not a use."""

    def put(self, chunk: ChunkKV) -> list[ChunkKV]:
        """Store `chunk`, making room by eviction; a chunk that cannot fit is not stored.

        Returns:
            The evicted chunks that a lower tier may take.
        """

    def settle(self, key: str) -> None:
        """Wait until `key`, put before, lies in this tier and nowhere faster. For measuring."""

    def discard(self, key: str) -> None:
        """Forget `key` if it is held and not in use."""

    def clear(self) -> int:
        """Forget everything not in use; returns the number of chunks dropped."""

    def memory(self) -> torch.Tensor | None:
        """Memory in which a kernel can read chunk KV, in the storage dtype; None: there is none."""

    def stats(self) -> TierStats: ...

    def close(self) -> None:
        """Finish pending work and free the memory. No call may follow."""
