"""The `gpu` and `cpu` tiers: chunk KV in the memory of one device."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

import torch

from kvweave.kv.admission import Admission
from kvweave.kv.chunk import ChunkKV, MappedPages, TierName
from kvweave.kv.eviction import EvictionPolicy
from kvweave.kv.format import KVFormat
from kvweave.kv.identity import ChunkRef
from kvweave.kv.layout import PAGE_TOKENS, page_count
from kvweave.kv.tiers.arena import PageArena, Pages
from kvweave.kv.tiers.base import TierStats


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    ref: ChunkRef
    pages: Pages
    recompute_seconds: float


class MemoryTier:
    """Chunk KV on `device`, never more than `capacity_bytes` of it.

    Leased chunks are pinned: they count against the limit and are not evicted. When pins leave no
    room, a new chunk is simply not stored. With `pin_memory`, host memory is page-locked, so that
    copies to a GPU run beside computation.

    admission: decides whether a new chunk may push out others; None: always.
    keep_evicted: whether `put` returns what it evicts, for a tier below to take.
    """

    def __init__(
        self,
        name: TierName,
        capacity_bytes: int,
        policy: EvictionPolicy,
        fmt: KVFormat,
        device: torch.device | str = "cpu",
        *,
        pin_memory: bool = False,
        keep_evicted: bool = False,
        admission: Admission | None = None,
    ) -> None:
        self._name: TierName = name
        self._policy = policy
        self._format = fmt
        self._arena = PageArena(capacity_bytes, fmt, device, pin_memory=pin_memory)
        self._keep_evicted = keep_evicted
        self._admission = admission
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._pins: Counter[str] = Counter()

    @property
    def name(self) -> TierName:
        return self._name

    def lease(self, ref: ChunkRef) -> MemoryLease | None:
        if self._admission is not None:
            self._admission.record(ref.key)
        with self._lock:
            entry = self._entries.get(ref.key)
            if entry is None or entry.ref.token_ids != ref.token_ids:
                return None
            self._policy.touch(ref.key)
            self._pins[ref.key] += 1
        return MemoryLease(self, entry)

    def contains(self, key: str) -> bool:
        with self._lock:
            return key in self._entries

    def put(self, chunk: ChunkKV) -> list[ChunkKV]:
        key = chunk.ref.key
        with self._lock:
            if key in self._entries:
                self._policy.touch(key)
                return []
            needed = page_count(len(chunk.ref.token_ids))
            victims = self._room_for(needed)
            if victims is None or not self._admits(key, victims):
                return []
            evicted = [self._drop(victim) for victim in victims]
            pages = self._arena.allocate(needed)
            self._arena.write(pages, chunk.pages)
            self._entries[key] = _Entry(chunk.ref, pages, chunk.recompute_seconds)
            self._policy.add(key, chunk.nbytes, chunk.recompute_seconds)
        return [chunk for chunk in evicted if chunk is not None]

    def settle(self, key: str) -> None:
        pass  # `put` has waited

    def discard(self, key: str) -> None:
        with self._lock:
            if key in self._entries and not self._pins[key]:
                self._drop(key, keep=False)

    def clear(self) -> int:
        with self._lock:
            free = [key for key in self._entries if not self._pins[key]]
            for key in free:
                self._drop(key, keep=False)
            return len(free)

    def memory(self) -> torch.Tensor | None:
        memory = self._arena.memory
        return memory if memory.is_cuda or memory.is_pinned() else None

    def stats(self) -> TierStats:
        with self._lock:
            arena = self._arena
            used = (arena.pages - arena.free_pages) * arena.page_bytes
            return TierStats(len(self._entries), used, arena.pages * arena.page_bytes)

    def close(self) -> None:
        self.clear()

    def _room_for(self, pages: int) -> list[str] | None:
        """Keys whose eviction makes room for `pages` more, or None if nothing can."""
        missing = pages - self._arena.free_pages
        victims: list[str] = []
        if missing <= 0:
            return victims
        if pages > self._arena.pages:
            return None
        for key in self._policy.victims():
            if self._pins[key]:
                continue
            victims.append(key)
            missing -= self._entries[key].pages.count
            if missing <= 0:
                return victims
        return None

    def _admits(self, key: str, victims: list[str]) -> bool:
        return self._admission is None or self._admission.admit(key, victims)

    def _drop(self, key: str, *, keep: bool = True) -> ChunkKV | None:
        entry = self._entries[key]
        evicted = self._read(entry) if keep and self._keep_evicted else None
        del self._entries[key]
        self._policy.remove(key)
        self._arena.free(entry.pages)
        return evicted

    # -- for leases ------------------------------------------------------------------------------

    def _read_layer(
        self, entry: _Entry, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        split, done, tokens = self._format.key_bytes, 0, keys.shape[1]
        for piece in self._arena.layer(entry.pages, layer):
            wanted = min(tokens - done, len(piece) * PAGE_TOKENS)
            if wanted <= 0:
                break
            content, span = piece[: page_count(wanted)], slice(done, done + wanted)
            self._format.decode_layer(
                content[:, :split], content[:, split:], keys[:, span], values[:, span]
            )
            done += wanted

    def _mapped(self, entry: _Entry) -> MappedPages | None:
        memory = self.memory()
        return None if memory is None else MappedPages(memory, entry.pages.on_host)

    def _read(self, entry: _Entry) -> ChunkKV:
        return ChunkKV(entry.ref, self._arena.read(entry.pages), entry.recompute_seconds)

    def _unpin(self, key: str) -> None:
        with self._lock:
            self._pins[key] -= 1
            if self._pins[key] <= 0:
                del self._pins[key]


class MemoryLease:
    """A lease on chunk KV in a memory tier: its pages are pinned until it is released."""

    __slots__ = ("_entry", "_released", "_tier")

    def __init__(self, tier: MemoryTier, entry: _Entry) -> None:
        self._tier = tier
        self._entry = entry
        self._released = False

    @property
    def tier(self) -> TierName:
        return self._tier.name

    @property
    def ref(self) -> ChunkRef:
        return self._entry.ref

    @property
    def recompute_seconds(self) -> float:
        return self._entry.recompute_seconds

    @property
    def window(self) -> None:
        return None

    def prefetch(self, layer: int) -> None:
        pass  # it is here already

    def ready(self) -> bool:
        return True

    def read_layer(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._check()
        self._tier._read_layer(self._entry, layer, keys, values)

    def mapped(self) -> MappedPages | None:
        self._check()
        return self._tier._mapped(self._entry)

    def whole(self) -> ChunkKV:
        self._check()
        return self._tier._read(self._entry)

    def _check(self) -> None:
        if self._released:  # its pages may be somebody else's by now
            raise RuntimeError("the lease was released")

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._tier._unpin(self._entry.ref.key)
