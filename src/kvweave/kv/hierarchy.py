"""The tiers as one cache: look up downwards, refill upwards, let evicted KV sink."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from kvweave.kv.calibration import measure_tiers
from kvweave.kv.chunk import ChunkKV, ChunkLease, ChunkUnreadable, TierName
from kvweave.kv.format import KVFormat
from kvweave.kv.identity import ChunkRef
from kvweave.kv.tiers.base import Tier, TierStats

MissReason = Literal["new", "other_system_prompt", "evicted", "unreadable"]


@dataclass(frozen=True, slots=True)
class Lookup:
    """The outcome of one lookup: a lease, or the reason why there is none."""

    lease: ChunkLease | None
    miss_reason: MissReason | None = None


class ChunkCache:
    """Chunk KV in up to three tiers, fastest first. Thread-safe.

    New chunks enter the first tier and are written behind to the `ssd` tier, so they survive a
    restart; what a memory tier evicts sinks to the next memory tier. A hit in a lower tier is
    copied up by `refill`.
    """

    def __init__(self, tiers: Sequence[Tier], fmt: KVFormat) -> None:
        self._tiers = tuple(tiers)
        self.format = fmt
        self._history = _History()

    @property
    def storage_dtype(self) -> str:
        """How chunk KV is stored; part of what a stored chunk is called."""
        return self.format.precision.name

    def nbytes(self, tokens: int) -> int:
        """Bytes that the stored KV of a chunk of `tokens` tokens takes."""
        return self.format.nbytes(tokens)

    def lookup(self, ref: ChunkRef) -> Lookup:
        """Lease the chunk from the fastest tier that holds it; the caller releases the lease."""
        held = False
        for tier in self._tiers:
            held_here = tier.contains(ref.key)
            lease = tier.lease(ref)
            if lease is not None:
                return Lookup(lease)
            if held_here and not tier.contains(ref.key):
                self.note_unreadable(ref)
            held = held or held_here
        reason = self._history.explain(ref)
        never_stored_here = reason in ("new", "other_system_prompt")
        return Lookup(None, "unreadable" if held and never_stored_here else reason)

    def contains(self, ref: ChunkRef) -> bool:
        """Whether any tier holds the chunk (or is about to). Not a use for eviction."""
        return any(tier.contains(ref.key) for tier in self._tiers)

    def put(self, ref: ChunkRef, kv: torch.Tensor, recompute_seconds: float = 0.0) -> None:
        """Store newly computed chunk KV in the first tier and, behind the caller, on the ssd.

        Args:
            kv: `KVLayout.shape(tokens)`, keys before RoPE.
            recompute_seconds: how long it took to compute.
        """
        chunk = ChunkKV(ref, self.format.encode(kv), recompute_seconds)
        self._history.stored(ref)
        self._insert(0, chunk)
        for tier in self._tiers[1:]:
            if tier.name == "ssd":
                tier.put(chunk)

    def refill(self, lease: ChunkLease) -> None:
        """Copy what `lease` holds into the tiers above the one it came from.

        Does nothing for a lease of the first tier. A chunk that turns out to be unreadable is left
        where it is: the tier has dealt with it.
        """
        if not self._tiers or lease.tier == self._tiers[0].name:
            return
        try:
            chunk = lease.whole()
        except ChunkUnreadable:
            return
        self._insert(0, chunk)

    def read(self, ref: ChunkRef) -> torch.Tensor | None:
        """The whole KV of a chunk, `KVLayout.shape(tokens)`, or None if it is not to be had."""
        lease = self.lookup(ref).lease
        if lease is None:
            return None
        try:
            return self.format.decode(lease.whole().pages, len(ref.token_ids))
        except ChunkUnreadable:
            self.note_unreadable(ref)
            return None
        finally:
            lease.release()

    def measure(self, ref: ChunkRef, kv: torch.Tensor) -> dict[TierName, tuple[int, float]]:
        """Bytes and seconds of loading `kv` from each tier; see `measure_tiers`."""
        return measure_tiers(self._tiers, self.format, ref, kv)

    def discard(self, ref: ChunkRef) -> None:
        """Forget this chunk in every tier where it is not in use."""
        for tier in self._tiers:
            tier.settle(ref.key)
            tier.discard(ref.key)

    def note_unreadable(self, ref: ChunkRef) -> None:
        """Remember that `ref` was lost while in use, for the next miss's reason."""
        self._history.unreadable(ref)

    def memories(self) -> list[torch.Tensor]:
        """What `ChunkLease.mapped` may point into: uint8 `[layers, pages, page_bytes]` each."""
        memories = (tier.memory() for tier in self._tiers)
        return [memory for memory in memories if memory is not None]

    def stats(self) -> dict[TierName, TierStats]:
        return {tier.name: tier.stats() for tier in self._tiers}

    def clear(self) -> int:
        """Drop every chunk not in use from every tier; returns the number of copies dropped."""
        return sum(tier.clear() for tier in self._tiers)

    def close(self) -> None:
        for tier in self._tiers:
            tier.close()

    def _insert(self, index: int, chunk: ChunkKV) -> None:
        """Put `chunk` into tier `index`; what that evicts sinks one tier further."""
        if index >= len(self._tiers):
            return
        for evicted in self._tiers[index].put(chunk):
            self._insert(index + 1, evicted)


class _History:
    """What was stored before, bounded: tells an evicted chunk from one never seen."""

    _LIMIT = 100_000

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys: OrderedDict[str, MissReason] = OrderedDict()
        self._contents: OrderedDict[str, None] = OrderedDict()

    def stored(self, ref: ChunkRef) -> None:
        with self._lock:
            self._keys[ref.key] = "evicted"  # what it will be when it is missed from now on
            self._contents[ref.content] = None
            self._trim()

    def unreadable(self, ref: ChunkRef) -> None:
        with self._lock:
            self._keys[ref.key] = "unreadable"
            self._trim()

    def explain(self, ref: ChunkRef) -> MissReason:
        with self._lock:
            reason = self._keys.get(ref.key)
            if reason is not None:
                return reason
            return "other_system_prompt" if ref.content in self._contents else "new"

    def _trim(self) -> None:
        while len(self._keys) > self._LIMIT:
            self._keys.popitem(last=False)
        while len(self._contents) > self._LIMIT:
            self._contents.popitem(last=False)
