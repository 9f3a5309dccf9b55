"""Chunk KV in memory, and the lease under which a request uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from kvweave.kv.identity import ChunkRef

TierName = Literal["gpu", "cpu", "ssd"]
TIER_NAMES: tuple[TierName, ...] = ("gpu", "cpu", "ssd")


class ChunkUnreadable(Exception):
    """Stored chunk KV could not be read or failed verification; treat it as a miss.

    `reason` is one word for metrics: "corrupt", "io_error" or "slow".
    """

    def __init__(self, key: str, reason: str, detail: str) -> None:
        super().__init__(f"chunk {key[:12]}: {detail}")
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class ChunkKV:
    """The stored KV of one chunk on its way between tiers; never overwritten once made.

    pages: uint8 `[pages, layers, page_bytes]`, see `KVFormat`.
    recompute_seconds: what computing it again would cost; for eviction.
    """

    ref: ChunkRef
    pages: torch.Tensor
    recompute_seconds: float = 0.0

    @property
    def nbytes(self) -> int:
        return self.pages.numel()


@dataclass(frozen=True, slots=True, eq=False)
class MappedPages:
    """Stored KV that a kernel can read where it lies.

    memory: uint8 `[layers, all pages, page_bytes]`, on the device or page-locked on the host.
    pages: int64 `[pages]` on the host, the chunk's own pages in order.
    """

    memory: torch.Tensor
    pages: torch.Tensor


class ChunkLease(Protocol):
    """Stored chunk KV that stays readable until `release` is called.

    A lease is used by one thread at a time. Every lease must be released, also when the request
    that holds it dies; a second `release` does nothing.
    """

    @property
    def tier(self) -> TierName: ...
    @property
    def ref(self) -> ChunkRef: ...

    @property
    def recompute_seconds(self) -> float:
        """What computing it took; 0 if that is not known."""

    @property
    def window(self) -> tuple[float, float] | None:
        """When background reading began and last ended (`perf_counter`); None without any."""

    def prefetch(self, layer: int) -> None:
        """Start bringing `layer` nearer. Returns at once."""

    def ready(self) -> bool:
        """Whether all that was prefetched is here, so that reading it does not wait.

        Raises:
            ChunkUnreadable: it cannot be had.
        """

    def read_layer(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Copy one layer, verified, into `keys` and `values`: each `[kv_heads, tokens, head_dim]`.

        `tokens` may be less than the chunk has; the rest is left out. Waits for the layer if it is
        still on its way.

        Raises:
            ChunkUnreadable: missing, short, corrupt or unreadable.
        """

    def mapped(self) -> MappedPages | None:
        """Where the pages lie, if they can be read there without `read_layer`, exactly as computed.

        Valid until `release`.
        """

    def whole(self) -> ChunkKV:
        """All of it, for another tier. Raises ChunkUnreadable like `read_layer`."""

    def release(self) -> None: ...
