"""The `gpu` and `cpu` tiers: chunk KV in the memory of one device."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import torch

from kvweave.kv.chunk import ChunkKV, MemoryLease, TierName
from kvweave.kv.eviction import EvictionPolicy
from kvweave.kv.tiers.base import TierStats


class MemoryTier:
    """Chunk KV on `device`, never more than `capacity_bytes` of it.

    Leased chunks are pinned: they count against the limit and are not evicted. When pins leave no
    room, a new chunk is simply not stored. With a GPU in the machine, host memory is page-locked
    (`pin_memory`), so that copies to the GPU run beside computation.
    """

    def __init__(
        self,
        name: TierName,
        capacity_bytes: int,
        policy: EvictionPolicy,
        device: torch.device | str = "cpu",
        *,
        pin_memory: bool = False,
    ) -> None:
        self._name: TierName = name
        self._capacity = capacity_bytes
        self._policy = policy
        self._device = torch.device(device)
        self._pin_memory = pin_memory
        self._lock = threading.Lock()
        self._chunks: dict[str, ChunkKV] = {}
        self._pins: Counter[str] = Counter()
        self._used = 0

    @property
    def name(self) -> TierName:
        return self._name

    def lease(self, key: str, token_ids: Sequence[int]) -> MemoryLease | None:
        with self._lock:
            chunk = self._chunks.get(key)
            if chunk is None or chunk.token_ids != tuple(token_ids):
                return None
            self._policy.touch(key)
            self._pins[key] += 1
        return MemoryLease(chunk, self._name, lambda: self._unpin(key))

    def contains(self, key: str) -> bool:
        with self._lock:
            return key in self._chunks

    def put(self, chunk: ChunkKV) -> list[ChunkKV]:
        with self._lock:
            if chunk.key in self._chunks:
                self._policy.touch(chunk.key)
                return []
            victims = self._room_for(chunk.nbytes)
            if victims is None:
                return []
            evicted = [self._drop(key) for key in victims]
            # Room is reserved before the copy, which may be slow, runs outside the lock.
            self._used += chunk.nbytes
        try:
            stored = ChunkKV(chunk.key, chunk.content, chunk.token_ids, self._own(chunk.kv))
        except BaseException:
            with self._lock:
                self._used -= chunk.nbytes
            raise
        with self._lock:
            if chunk.key in self._chunks:  # another thread was first
                self._used -= chunk.nbytes
            else:
                self._chunks[chunk.key] = stored
                self._policy.add(chunk.key)
        return evicted

    def discard(self, key: str) -> None:
        with self._lock:
            if key in self._chunks and not self._pins[key]:
                self._drop(key)

    def clear(self) -> int:
        with self._lock:
            free = [key for key in self._chunks if not self._pins[key]]
            for key in free:
                self._drop(key)
            return len(free)

    def stats(self) -> TierStats:
        with self._lock:
            return TierStats(len(self._chunks), self._used, self._capacity)

    def close(self) -> None:
        self.clear()

    def _own(self, kv: torch.Tensor) -> torch.Tensor:
        """`kv` on this tier's device as memory that nobody else writes to."""
        if kv.device == self._device and kv.is_contiguous():
            return kv  # chunk KV is never overwritten, so tiers on one device share it
        out = torch.empty(
            kv.shape, dtype=kv.dtype, device=self._device, pin_memory=self._pin_memory
        )
        return out.copy_(kv)

    def _room_for(self, nbytes: int) -> list[str] | None:
        """Keys whose eviction makes room for `nbytes`, or None if nothing can."""
        missing = self._used + nbytes - self._capacity
        victims: list[str] = []
        if missing <= 0:
            return victims
        for key in self._policy.victims():
            if self._pins[key]:
                continue
            victims.append(key)
            missing -= self._chunks[key].nbytes
            if missing <= 0:
                return victims
        return None

    def _drop(self, key: str) -> ChunkKV:
        chunk = self._chunks.pop(key)
        self._policy.remove(key)
        self._used -= chunk.nbytes
        return chunk

    def _unpin(self, key: str) -> None:
        with self._lock:
            self._pins[key] -= 1
            if self._pins[key] <= 0:
                del self._pins[key]
