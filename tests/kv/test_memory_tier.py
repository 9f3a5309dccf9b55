"""The memory tiers: a hard limit, LRU order, and leases that hold."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch

from kvweave.kv import Admission, MemoryTier, make_policy


@pytest.fixture
def tier(kv):
    """Room for three chunks of up to 16 tokens."""
    return MemoryTier("cpu", 3 * kv.format.nbytes(10), make_policy("lru"), kv.format)


def test_a_lease_reads_back_what_was_put(tier, kv):
    chunk = kv.chunk(1)
    tier.put(chunk)
    lease = tier.lease(chunk.ref)
    assert torch.equal(kv.read(lease), kv.tensor(1))
    assert (lease.tier, lease.ref) == ("cpu", chunk.ref)


def test_other_token_ids_under_the_same_key_are_a_miss(tier, kv):
    chunk = kv.chunk(1)
    tier.put(chunk)
    other = replace(chunk.ref, token_ids=(*chunk.ref.token_ids[:-1], 99))
    assert tier.lease(other) is None


def test_the_least_recently_used_chunk_goes_first(tier, kv):
    chunks = [kv.chunk(i) for i in range(4)]
    for chunk in chunks[:3]:
        tier.put(chunk)
    tier.lease(chunks[0].ref).release()
    tier.put(chunks[3])
    assert not tier.contains(chunks[1].ref.key)
    assert tier.contains(chunks[0].ref.key)


def test_a_leased_chunk_is_not_evicted_and_goes_after_its_release(tier, kv):
    chunks = [kv.chunk(i) for i in range(5)]
    for chunk in chunks[:3]:
        tier.put(chunk)
    leases = [tier.lease(c.ref) for c in chunks[:3]]
    assert tier.put(chunks[3]) == []
    assert not tier.contains(chunks[3].ref.key)
    leases[1].release()
    leases[1].release()  # a second release does nothing
    tier.put(chunks[4])
    assert [tier.contains(c.ref.key) for c in chunks] == [True, False, True, False, True]


def test_a_chunk_larger_than_the_tier_is_not_stored_and_evicts_nothing(tier, kv):
    small, large = kv.chunk(1), kv.chunk(2, tokens=49)
    tier.put(small)
    assert tier.put(large) == []
    assert tier.contains(small.ref.key)
    assert not tier.contains(large.ref.key)


def test_putting_a_chunk_twice_counts_it_once(tier, kv):
    tier.put(kv.chunk(1))
    tier.put(kv.chunk(1))
    assert tier.stats().used_bytes == kv.chunk(1).nbytes


def test_clear_spares_what_is_in_use(tier, kv):
    for i in range(3):
        tier.put(kv.chunk(i))
    lease = tier.lease(kv.ref(0))
    assert tier.clear() == 2
    lease.release()
    assert tier.clear() == 1
    assert tier.stats().used_bytes == 0


def test_the_limit_holds_under_many_threads(tier, kv):
    chunks = [kv.chunk(i, tokens=3 + i % 9) for i in range(40)]
    over = []

    def work(offset):
        for i in range(200):
            chunk = chunks[(offset * 7 + i) % len(chunks)]
            tier.put(chunk)
            lease = tier.lease(chunk.ref)
            if lease is not None:
                if not torch.equal(lease.whole().pages, chunk.pages):
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


def test_what_is_evicted_can_be_kept_for_the_tier_below(kv):
    tier = MemoryTier("gpu", kv.format.nbytes(10), make_policy("lru"), kv.format, keep_evicted=True)
    tier.put(kv.chunk(1))
    (evicted,) = tier.put(kv.chunk(2))
    assert evicted.ref == kv.ref(1)
    assert torch.equal(evicted.pages, kv.chunk(1).pages)


def test_churn_of_all_sizes_never_loses_room(kv):
    """After any history, everything that is free can be used: pages do not fragment."""
    tier = MemoryTier("cpu", 64 * kv.format.nbytes(16), make_policy("lru"), kv.format)
    for i in range(500):
        tier.put(kv.chunk(i, tokens=1 + i * 37 % 200))
    tier.clear()
    tier.put(kv.chunk(1000, tokens=64 * 16))
    assert tier.stats().used_bytes == tier.stats().capacity_bytes


@pytest.mark.parametrize("holes", [1, 3, 9])
def test_a_chunk_reads_back_wherever_its_pages_lie(kv, holes):
    """In one run of pages, in a few, and in so many that they are gathered."""
    tier = MemoryTier("cpu", 20 * kv.format.nbytes(16), make_policy("lru"), kv.format)
    small = [kv.chunk(i) for i in range(20)]
    for chunk in small:
        tier.put(chunk)
    for chunk in small[: 2 * holes : 2]:
        tier.discard(chunk.ref.key)
    chunk = kv.chunk(100, tokens=16 * holes - 3)
    tier.put(chunk)
    lease = tier.lease(chunk.ref)
    assert torch.equal(lease.whole().pages, chunk.pages)
    assert torch.equal(kv.read(lease), kv.tensor(100, tokens=16 * holes - 3))
    for cut in range(1, 16 * holes - 3, 7):  # a prompt may end within a chunk
        keys, values = torch.empty(2, 2, cut, 8)
        lease.read_layer(1, keys, values)
        assert torch.equal(keys, kv.tensor(100, tokens=16 * holes - 3)[1, 0, :, :cut])
    lease.release()


def test_a_sweep_over_new_chunks_does_not_push_out_what_is_hot(kv):
    admission = Admission(keys=4)
    tier = MemoryTier(
        "cpu", 4 * kv.format.nbytes(10), make_policy("lru"), kv.format, admission=admission
    )
    hot = [kv.chunk(i) for i in range(4)]
    for chunk in hot:
        tier.put(chunk)
    for _ in range(5):
        for chunk in hot:
            tier.lease(chunk.ref).release()
    for i in range(100, 140):
        assert tier.lease(kv.ref(i)) is None
        tier.put(kv.chunk(i))
    assert all(tier.contains(chunk.ref.key) for chunk in hot)
