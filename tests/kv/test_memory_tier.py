"""The memory tiers: a hard limit, LRU order, and leases that hold."""

from __future__ import annotations

import threading

import pytest
import torch

from kvweave.kv import MemoryTier, make_policy


@pytest.fixture
def tier(layout):
    return MemoryTier("cpu", 3 * layout.nbytes(10), make_policy("lru"))


def test_a_lease_reads_back_what_was_put(tier, make_chunk):
    chunk = make_chunk(1)
    tier.put(chunk)
    lease = tier.lease(chunk.key, chunk.token_ids)
    assert torch.equal(torch.stack([lease.layer(i) for i in range(3)]), chunk.kv)
    assert (lease.tier, lease.tokens) == ("cpu", 10)


def test_other_token_ids_under_the_same_key_are_a_miss(tier, make_chunk):
    chunk = make_chunk(1)
    tier.put(chunk)
    assert tier.lease(chunk.key, (*chunk.token_ids[:-1], 99)) is None


def test_the_least_recently_used_chunk_goes_first(tier, make_chunk):
    chunks = [make_chunk(i) for i in range(4)]
    for chunk in chunks[:3]:
        tier.put(chunk)
    tier.lease(chunks[0].key, chunks[0].token_ids).release()
    evicted = tier.put(chunks[3])
    assert [c.key for c in evicted] == [chunks[1].key]
    assert tier.contains(chunks[0].key)


def test_a_leased_chunk_is_not_evicted_and_goes_after_its_release(tier, make_chunk):
    chunks = [make_chunk(i) for i in range(5)]
    for chunk in chunks[:3]:
        tier.put(chunk)
    leases = [tier.lease(c.key, c.token_ids) for c in chunks[:3]]
    assert tier.put(chunks[3]) == []
    assert not tier.contains(chunks[3].key)
    leases[1].release()
    leases[1].release()  # a second release does nothing
    assert [c.key for c in tier.put(chunks[4])] == [chunks[1].key]


def test_a_chunk_larger_than_the_tier_is_not_stored_and_evicts_nothing(tier, make_chunk):
    small, large = make_chunk(1), make_chunk(2, tokens=31)
    tier.put(small)
    assert tier.put(large) == []
    assert tier.contains(small.key)
    assert not tier.contains(large.key)


def test_putting_a_chunk_twice_counts_it_once(tier, make_chunk):
    tier.put(make_chunk(1))
    tier.put(make_chunk(1))
    assert tier.stats().used_bytes == make_chunk(1).nbytes


def test_clear_spares_what_is_in_use(tier, make_chunk):
    for i in range(3):
        tier.put(make_chunk(i))
    lease = tier.lease(make_chunk(0).key, make_chunk(0).token_ids)
    assert tier.clear() == 2
    lease.release()
    assert tier.clear() == 1
    assert tier.stats().used_bytes == 0


def test_the_limit_holds_under_many_threads(tier, make_chunk):
    chunks = [make_chunk(i, tokens=3 + i % 9) for i in range(40)]
    over = []

    def work(offset):
        for i in range(200):
            chunk = chunks[(offset * 7 + i) % len(chunks)]
            tier.put(chunk)
            lease = tier.lease(chunk.key, chunk.token_ids)
            if lease is not None:
                if not torch.equal(lease.whole().kv, chunk.kv):
                    over.append("wrong bytes")
                lease.release()
            if tier.stats().used_bytes > tier.stats().capacity_bytes:
                over.append("over the limit")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert over == []
    tier.clear()
    assert tier.stats().used_bytes == 0
