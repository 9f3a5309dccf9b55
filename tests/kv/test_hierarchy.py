"""The tiers as one cache."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvweave.kv import ChunkCache, KVFormat, KVLayout, MemoryTier, SSDTier, chunk_ref, make_policy

FORMAT = KVFormat(KVLayout(layers=2, kv_heads=1, head_dim=4, dtype=torch.float32))


def ref(seed, **kwargs):
    named = {"model_identity": "m", "tenant": "", "prefix_ids": (1,)} | kwargs
    return chunk_ref(token_ids=tuple(range(seed, seed + 5)), **named)


def tensor(seed):
    return torch.full(FORMAT.layout.shape(5), float(seed))


def put(cache, seed):
    cache.put(ref(seed), tensor(seed))


def memory(name, chunks):
    policy = make_policy("lru")
    return MemoryTier(name, chunks * FORMAT.nbytes(5), policy, FORMAT, keep_evicted=True)


def holds(lease, seed):
    return torch.equal(FORMAT.decode(lease.whole().pages, 5), tensor(seed))


@pytest.fixture
def cache(tmp_path):
    ssd = SSDTier(tmp_path, 10**6, make_policy("lru"), FORMAT)
    cache = ChunkCache([memory("gpu", 2), memory("cpu", 2), ssd], FORMAT)
    cache.flush = ssd.flush
    yield cache
    cache.close()


def tier_of(cache, seed):
    lease = cache.lookup(ref(seed)).lease
    if lease is None:
        return None
    assert holds(lease, seed)
    lease.release()
    return lease.tier


def test_new_chunks_enter_the_gpu_tier_and_sink_as_others_come(cache):
    for seed in range(5):
        put(cache, seed)
    cache.flush()
    assert [tier_of(cache, seed) for seed in range(5)] == ["ssd", "cpu", "cpu", "gpu", "gpu"]


def test_a_hit_below_is_copied_up(cache):
    for seed in range(5):
        put(cache, seed)
    cache.flush()
    lease = cache.lookup(ref(0)).lease
    cache.refill(lease)
    lease.release()
    assert tier_of(cache, 0) == "gpu"


def test_a_miss_says_why(cache):
    assert cache.lookup(ref(7)).miss_reason == "new"
    put(cache, 7)
    assert cache.lookup(ref(7, prefix_ids=(2,))).miss_reason == "other_system_prompt"
    assert cache.lookup(ref(7, tenant="other")).miss_reason == "new"
    cache.flush()
    cache.clear()
    assert cache.lookup(ref(7)).miss_reason == "evicted"
    cache.note_unreadable(ref(7))
    assert cache.lookup(ref(7)).miss_reason == "unreadable"


def test_without_any_tier_everything_is_a_miss():
    cache = ChunkCache([], FORMAT)
    put(cache, 1)
    assert cache.lookup(ref(1)).lease is None


class AgainstASimpleModel(RuleBasedStateMachine):
    """Two memory tiers of two and three chunks behave like two LRU lists."""

    def __init__(self):
        super().__init__()
        self.tiers = [memory("gpu", 2), memory("cpu", 3)]
        self.cache = ChunkCache(self.tiers, FORMAT)
        self.lists: list[list[int]] = [[], []]  # oldest first
        self.leases = []

    def sink(self, level, seed):
        if level == 2:
            return
        held = self.lists[level]
        if seed in held:
            held.remove(seed)
            held.append(seed)
            return
        if len(held) == (2, 3)[level]:
            self.sink_later = held.pop(0)
            held.append(seed)
            self.sink(level + 1, self.sink_later)
        else:
            held.append(seed)

    @rule(seed=st.integers(0, 8))
    def put(self, seed):
        put(self.cache, seed)
        self.sink(0, seed)

    @rule(seed=st.integers(0, 8), refill=st.booleans())
    def look_up(self, seed, refill):
        lease = self.cache.lookup(ref(seed)).lease
        level = next((i for i, held in enumerate(self.lists) if seed in held), None)
        if level is None:
            assert lease is None
            return
        assert lease.tier == ("gpu", "cpu")[level]
        assert holds(lease, seed)
        self.lists[level].remove(seed)
        self.lists[level].append(seed)
        if refill and level == 1:
            self.cache.refill(lease)
            self.sink(0, seed)
        lease.release()

    @precondition(lambda self: any(self.lists))
    @rule()
    def clear(self):
        self.cache.clear()
        self.lists = [[], []]

    @invariant()
    def limits_hold_and_contents_agree(self):
        for tier, held in zip(self.tiers, self.lists, strict=True):
            stats = tier.stats()
            assert stats.used_bytes == len(held) * FORMAT.nbytes(5) <= stats.capacity_bytes
            assert all(tier.contains(ref(seed).key) for seed in held)


TestAgainstASimpleModel = AgainstASimpleModel.TestCase
TestAgainstASimpleModel.settings = settings(deadline=None, max_examples=60)
