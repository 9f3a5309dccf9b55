"""Chunk KV in memory, and the lease under which a request uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

TierName = Literal["gpu", "cpu", "ssd"]
TIER_NAMES: tuple[TierName, ...] = ("gpu", "cpu", "ssd")


class ChunkUnreadable(Exception):
    """Stored chunk KV could not be read or failed verification; treat it as a miss.

    `reason` is one word for metrics: "missing", "corrupt" or "io_error".
    """

    def __init__(self, key: str, reason: str, detail: str) -> None:
        super().__init__(f"chunk {key[:12]}: {detail}")
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True, eq=False)
class ChunkKV:
    """The KV of one chunk, never overwritten once made.

    kv: `[layers, 2, kv_heads, tokens, head_dim]`, keys before RoPE (see `KVLayout`).
    """

    key: str
    content: str
    token_ids: tuple[int, ...]
    kv: torch.Tensor

    @property
    def tokens(self) -> int:
        return len(self.token_ids)

    @property
    def nbytes(self) -> int:
        return self.kv.numel() * self.kv.element_size()


class ChunkLease(Protocol):
    """Stored chunk KV that stays readable until `release` is called.

    A lease is used by one thread at a time. Every lease must be released, also when the request
    that holds it dies; a second `release` does nothing.
    """

    @property
    def tier(self) -> TierName: ...
    @property
    def key(self) -> str: ...
    @property
    def tokens(self) -> int: ...

    def prefetch(self, layer: int) -> None:
        """Start bringing `layer` nearer. Returns at once."""

    def layer(self, layer: int) -> torch.Tensor:
        """`[2, kv_heads, tokens, head_dim]` of one layer, verified; not to be written to.

        Waits for the layer if it is still on its way.

        Raises:
            ChunkUnreadable: missing, short, corrupt or unreadable.
        """

    def whole(self) -> ChunkKV:
        """All layers as one `ChunkKV`. Raises ChunkUnreadable like `layer`."""

    def release(self) -> None: ...


class MemoryLease:
    """A lease on chunk KV that already lies in memory: reading is a view, releasing unpins."""

    __slots__ = ("_chunk", "_on_release", "_tier")

    def __init__(
        self, chunk: ChunkKV, tier: TierName, on_release: Callable[[], None] | None = None
    ) -> None:
        self._chunk = chunk
        self._tier: TierName = tier
        self._on_release = on_release

    @property
    def tier(self) -> TierName:
        return self._tier

    @property
    def key(self) -> str:
        return self._chunk.key

    @property
    def tokens(self) -> int:
        return self._chunk.tokens

    def prefetch(self, layer: int) -> None:
        pass

    def layer(self, layer: int) -> torch.Tensor:
        return self._chunk.kv[layer]

    def whole(self) -> ChunkKV:
        return self._chunk

    def release(self) -> None:
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()
