"""The simulator against a brute-force reference, and against the tier that it stands for."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvweave.kv import MemoryTier, make_policy
from kvweave.kv.eviction import POLICIES
from kvweave.kv.simulate import replay, summarise
from kvweave.kv.trace import ChunkLookup


def lookup(key, nbytes=1, tokens=1, cost_ms=1.0):
    return ChunkLookup(0.0, str(key), "content", tokens, nbytes, cost_ms, None)


KEYS = st.integers(0, 11)
TRACES = st.lists(KEYS, min_size=1, max_size=80).map(
    lambda keys: [lookup(key, 1 + key % 4, 10 + key, 2.0 * key) for key in keys]
)


def lru_by_brute_force(trace, capacity):
    """Hits of LRU: a list of the keys held, the longest unused first."""
    held, hits, evicted = [], [], 0
    for each in trace:
        known = [other for other in held if other.key == each.key]
        if known:
            hits.append(each)
            held.remove(known[0])
        elif each.bytes > capacity:
            continue
        while sum(other.bytes for other in held) + each.bytes > capacity:
            held.pop(0)
            evicted += 1
        held.append(each)
    return hits, evicted


@given(TRACES, st.integers(1, 30))
def test_lru_hits_what_a_brute_force_search_finds(trace, capacity):
    hits, evicted = lru_by_brute_force(trace, capacity)
    result = replay(trace, "lru", capacity)
    assert result.hit_rate == len(hits) / len(trace)
    assert result.token_hit_rate == sum(x.tokens for x in hits) / sum(x.tokens for x in trace)
    assert result.byte_hit_rate == sum(x.bytes for x in hits) / sum(x.bytes for x in trace)
    assert result.saved_seconds == pytest.approx(sum(x.cost_ms for x in hits) / 1e3)
    assert result.evicted == evicted
    assert result.refused == 0


@pytest.mark.parametrize("admission", [False, True])
@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(trace=TRACES)
def test_a_tier_that_holds_everything_hits_whatever_repeats(policy, admission, trace):
    summary = summarise(trace)
    result = replay(trace, policy, summary.distinct_bytes, admission=admission)
    assert result.evicted == result.refused == 0
    assert result.hit_rate == pytest.approx(1 - summary.keys / summary.lookups)
    assert result.token_hit_rate == pytest.approx(summary.token_hit_rate)
    assert result.byte_hit_rate == pytest.approx(summary.byte_hit_rate)
    assert result.saved_seconds == pytest.approx(summary.saved_seconds)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(trace=TRACES, capacity=st.integers(1, 12))
def test_no_tier_hits_more_than_one_without_a_limit(policy, trace, capacity):
    summary = summarise(trace)
    for admission in (False, True):
        result = replay(trace, policy, capacity, admission=admission)
        assert 0 <= result.token_hit_rate <= summary.token_hit_rate + 1e-9


def test_a_summary_says_what_a_trace_asks_for():
    trace = [lookup("a", 10, 3, 500.0), lookup("b", 20, 5, 1500.0), lookup("a", 10, 3, 500.0)]
    summary = summarise(trace)
    assert (summary.lookups, summary.keys, summary.tokens) == (3, 2, 11)
    assert summary.distinct_bytes == 30
    assert summary.token_hit_rate == pytest.approx(3 / 11)
    assert summary.byte_hit_rate == pytest.approx(10 / 40)
    assert (summary.saved_seconds, summary.cost_seconds) == pytest.approx((0.5, 2.5))


def test_a_chunk_larger_than_the_tier_is_not_stored_and_evicts_nothing():
    trace = [lookup("a", 4), lookup("huge", 11), lookup("huge", 11), lookup("a", 4)]
    result = replay(trace, "lru", 10)
    assert (result.hit_rate, result.evicted) == (0.25, 0)


def test_admission_refuses_a_chunk_that_was_asked_for_less_than_its_victim():
    trace = [lookup("hot", 6)] * 3 + [lookup("once", 6), lookup("hot", 6)]
    result = replay(trace, "lru", 10, admission=True)
    assert (result.hit_rate, result.refused, result.evicted) == (0.6, 1, 0)


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="unknown eviction policy"):
        replay([lookup("a")], "fifo", 10)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_replay_hits_exactly_what_the_memory_tier_hits(policy, kv):
    rng = random.Random(0)
    chunks = [kv.chunk(100 * i, tokens=rng.randint(1, 60)) for i in range(40)]
    asked = [chunks[min(int(rng.paretovariate(0.6)), 40) - 1] for _ in range(1500)]
    trace = [
        lookup(x.ref.key, x.nbytes, len(x.ref.token_ids), 1e3 * x.recompute_seconds) for x in asked
    ]
    capacity = 30 * kv.format.nbytes(16)
    tier = MemoryTier("cpu", capacity, make_policy(policy), kv.format)
    hits = 0
    for chunk in asked:
        lease = tier.lease(chunk.ref)
        if lease is None:
            tier.put(chunk)
        else:
            hits += 1
            lease.release()
    result = replay(trace, policy, capacity)
    assert result.hit_rate == hits / len(asked)
    assert 0.2 < result.hit_rate < 0.9


def zipf_with_a_scan():
    rng = random.Random(0)
    weights = [1 / (rank + 1) for rank in range(500)]
    sizes = [rng.randint(1, 20) for _ in weights]
    trace = []
    for number, key in enumerate(rng.choices(range(500), weights, k=9000)):
        trace.append(lookup(key, sizes[key], sizes[key], 5.0 + sizes[key]))
        if 3000 <= number < 6000:
            trace.append(lookup(f"swept {number}", 10, 10, 15.0))
    return trace


@pytest.mark.parametrize("policy", ["lfu", "s3fifo", "cost"])
def test_on_a_zipf_trace_with_a_scan_lru_is_beaten(policy):
    trace = zipf_with_a_scan()
    for capacity in (200, 600, 1500):
        result, lru = replay(trace, policy, capacity), replay(trace, "lru", capacity)
        assert result.token_hit_rate > lru.token_hit_rate + 0.01
        assert result.saved_seconds > lru.saved_seconds


def test_on_a_zipf_trace_with_a_scan_admission_helps_lru():
    trace = zipf_with_a_scan()
    with_admission = replay(trace, "lru", 600, admission=True)
    assert with_admission.token_hit_rate > replay(trace, "lru", 600).token_hit_rate + 0.01
