"""What a tier would have hit, had it been of another size or followed another policy.

Replays recorded lookups against one tier, with the very policies and the very admission that the
tiers use. No chunk KV is read or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvweave.kv.admission import Admission
from kvweave.kv.eviction import EvictionPolicy, make_policy
from kvweave.kv.trace import ChunkLookup


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What a trace asks for, and what a cache without a limit would make of it.

    Attributes:
        keys: how many different chunks.
        distinct_bytes: what they take together.
        token_hit_rate, byte_hit_rate, saved_seconds: as in `Replay`, if nothing were ever evicted.
        cost_seconds: computing everything that was looked up, every time.
    """

    lookups: int
    keys: int
    tokens: int
    distinct_bytes: int
    token_hit_rate: float
    byte_hit_rate: float
    saved_seconds: float
    cost_seconds: float


@dataclass(frozen=True, slots=True)
class Replay:
    """One replay: how it was set up and what it hit.

    Attributes:
        hit_rate: share of the lookups that hit; token_hit_rate, byte_hit_rate: of their tokens and
            bytes.
        saved_seconds: recomputing that the hits made unnecessary.
        evicted: chunks that had to go.
        refused: times that admission kept a chunk out.
    """

    policy: str
    admission: bool
    capacity_bytes: int
    hit_rate: float
    token_hit_rate: float
    byte_hit_rate: float
    saved_seconds: float
    evicted: int
    refused: int


def summarise(trace: Sequence[ChunkLookup]) -> TraceSummary:
    """Sums over a trace that is not empty."""
    first = {lookup.key: lookup for lookup in reversed(trace)}.values()
    tokens, nbytes, cost = _sums(trace)
    first_tokens, first_bytes, first_cost = _sums(first)
    return TraceSummary(
        lookups=len(trace),
        keys=len(first),
        tokens=tokens,
        distinct_bytes=first_bytes,
        token_hit_rate=1 - first_tokens / tokens,
        byte_hit_rate=1 - first_bytes / nbytes,
        saved_seconds=cost - first_cost,
        cost_seconds=cost,
    )


def replay(
    trace: Sequence[ChunkLookup], policy: str, capacity_bytes: int, *, admission: bool = False
) -> Replay:
    """Replay a trace that is not empty against a tier that is. Every miss asks to be stored.

    Raises:
        ValueError: there is no such policy.
    """
    all_tokens, all_bytes, _ = _sums(trace)
    keys = capacity_bytes * len(trace) // all_bytes
    admitting = Admission(keys) if admission else None
    tier = _SimulatedTier(make_policy(policy), capacity_bytes, admitting)
    hits = [lookup for lookup in trace if tier.lookup(lookup)]
    tokens, nbytes, cost = _sums(hits)
    return Replay(
        policy=policy,
        admission=admission,
        capacity_bytes=capacity_bytes,
        hit_rate=len(hits) / len(trace),
        token_hit_rate=tokens / all_tokens,
        byte_hit_rate=nbytes / all_bytes,
        saved_seconds=cost,
        evicted=tier.evicted,
        refused=tier.refused,
    )


class _SimulatedTier:
    def __init__(
        self, policy: EvictionPolicy, capacity_bytes: int, admission: Admission | None
    ) -> None:
        self._policy = policy
        self._admission = admission
        self._sizes: dict[str, int] = {}
        self._free = capacity_bytes
        self._capacity = capacity_bytes
        self.evicted = 0
        self.refused = 0

    def lookup(self, lookup: ChunkLookup) -> bool:
        """Whether it hits; if not, it is stored, as after a request that had to compute it."""
        if self._admission is not None:
            self._admission.record(lookup.key)
        if lookup.key in self._sizes:
            self._policy.touch(lookup.key)
            return True
        if lookup.bytes <= self._capacity:
            self._store(lookup)
        return False

    def _store(self, lookup: ChunkLookup) -> None:
        victims = self._victims(lookup.bytes - self._free)
        if self._admission is not None and not self._admission.admit(lookup.key, victims):
            self.refused += 1
            return
        for key in victims:
            self._free += self._sizes.pop(key)
            self._policy.remove(key)
        self.evicted += len(victims)
        self._free -= lookup.bytes
        self._sizes[lookup.key] = lookup.bytes
        self._policy.add(lookup.key, lookup.bytes, lookup.cost_ms / 1e3)

    def _victims(self, missing: int) -> list[str]:
        """Keys that free `missing` bytes together; the policy gives them up in this order."""
        victims: list[str] = []
        if missing > 0:
            for key in self._policy.victims():
                victims.append(key)
                missing -= self._sizes[key]
                if missing <= 0:
                    break
        return victims


def _sums(lookups: Iterable[ChunkLookup]) -> tuple[int, int, float]:
    """Tokens, bytes and seconds to compute."""
    tokens = nbytes = 0
    cost_ms = 0.0
    for lookup in lookups:
        tokens += lookup.tokens
        nbytes += lookup.bytes
        cost_ms += lookup.cost_ms
    return tokens, nbytes, cost_ms / 1e3
