"""The ssd tier: verified files under a hard limit, found again, never in the way."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvweave.kv import ChunkKV, ChunkUnreadable, KVFormat, KVLayout, SSDTier, make_policy
from kvweave.kv.tiers import reading


@pytest.fixture
def open_tier(tmp_path, kv):
    tiers = []

    def open_(capacity=10**7, fmt=kv.format, **kwargs):
        tier = SSDTier(tmp_path / "kv", capacity, make_policy("lru"), fmt, **kwargs)
        tiers.append(tier)
        return tier

    yield open_
    for tier in tiers:
        tier.close()


def files(tmp_path):
    return sorted((tmp_path / "kv").glob("??/*.safetensors"))


def store(tier, *chunks):
    for chunk in chunks:
        tier.put(chunk)
    tier.flush()


def read(tier, chunk):
    """The stored pages, or None for a miss."""
    lease = tier.lease(chunk.ref)
    if lease is None:
        return None
    try:
        return lease.whole().pages
    finally:
        lease.release()


@pytest.mark.parametrize("direct_io", [False, True])
@pytest.mark.parametrize("storage", ["auto", "int8", "fp8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_chunk_is_found_again_bit_for_bit_after_a_restart(
    open_tier, kv, dtype, storage, direct_io
):
    fmt = KVFormat(KVLayout(3, 2, 8, dtype), storage)
    chunk = kv.chunk(1, fmt=fmt)
    first = open_tier(fmt=fmt)
    store(first, chunk)
    first.close()
    assert torch.equal(read(open_tier(fmt=fmt, direct_io=direct_io), chunk), chunk.pages)


@pytest.mark.parametrize("head_dim", [8, 64])  # layers that end within a block, and with one
def test_direct_reads_give_what_plain_ones_give(open_tier, kv, monkeypatch, head_dim):
    fmt = KVFormat(KVLayout(3, 2, head_dim, torch.float32))
    chunk = ChunkKV(
        kv.ref(1, tokens=40), fmt.encode(torch.randn(fmt.layout.shape(40))), recompute_seconds=0.5
    )
    store(open_tier(fmt=fmt), chunk)
    copied = []
    monkeypatch.setattr(reading, "_aligned_buffer", spy(reading._aligned_buffer, copied))
    lease = open_tier(fmt=fmt, direct_io=True).lease(chunk.ref)
    assert torch.equal(lease.whole().pages, chunk.pages)
    assert lease.recompute_seconds == 0.5
    lease.release()
    assert bool(copied) == (head_dim == 8), "whole blocks need no copy"


def spy(function, calls):
    def call(*args):
        calls.append(args)
        return function(*args)

    return call


def test_layers_can_be_read_one_by_one_in_any_order(open_tier, kv):
    tier, chunk = open_tier(), kv.chunk(1)
    store(tier, chunk)
    lease, expected = tier.lease(chunk.ref), kv.tensor(1)
    for layer in (2, 0, 1, 2):
        keys, values = torch.empty(2, 2, 10, 8)
        lease.prefetch(layer)
        lease.read_layer(layer, keys, values)
        assert torch.equal(torch.stack([keys, values]), expected[layer])
    lease.release()


def test_the_limit_is_kept_in_real_disk_blocks(open_tier, kv, tmp_path):
    capacity = 40_000
    tier = open_tier(capacity)
    for i in range(20):
        store(tier, kv.chunk(i))
        real = sum(f.stat().st_blocks * 512 for f in files(tmp_path))
        assert real == tier.stats().used_bytes <= capacity


def test_the_limit_is_kept_when_a_restart_lowers_it(open_tier, kv, tmp_path):
    first = open_tier()
    store(first, *(kv.chunk(i) for i in range(8)))
    first.close()
    open_tier(capacity=20_000)
    assert sum(f.stat().st_blocks * 512 for f in files(tmp_path)) <= 20_000


def test_eviction_order_survives_a_restart(open_tier, kv, tmp_path):
    chunks = [kv.chunk(i) for i in range(3)]
    first = open_tier()
    store(first, *chunks)
    first.close()
    for age, path in enumerate(files(tmp_path)):
        os.utime(path, (1000 + age, 1000 + age))
    oldest = files(tmp_path)[0].name
    everything = [tmp_path / "kv", *(tmp_path / "kv").rglob("*")]
    size = sum(f.stat().st_blocks * 512 for f in everything)
    open_tier(capacity=size - 4096)
    assert oldest not in [f.name for f in files(tmp_path)]
    assert len(files(tmp_path)) == 2


def test_files_are_private(open_tier, kv, tmp_path):
    store(open_tier(), kv.chunk(1))
    assert stat.S_IMODE((tmp_path / "kv").stat().st_mode) == 0o700
    assert stat.S_IMODE(files(tmp_path)[0].stat().st_mode) == 0o600


def test_other_token_ids_are_never_served(open_tier, kv):
    tier, chunk = open_tier(), kv.chunk(1)
    store(tier, chunk)
    other = replace(chunk.ref, token_ids=(*chunk.ref.token_ids[:-1], 77))
    assert tier.lease(other) is None


def test_leftovers_of_a_dead_process_are_removed(open_tier, kv, tmp_path):
    open_tier().close()
    leftover = tmp_path / "kv" / "tmp" / f"{'a' * 64}.999999999.1.tmp"
    leftover.write_bytes(b"half")
    open_tier()
    assert not leftover.exists()


def test_foreign_files_are_left_alone(open_tier, tmp_path):
    open_tier().close()
    foreign = tmp_path / "kv" / "ab"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    assert open_tier().stats().chunks == 0
    assert (foreign / "notes.txt").exists()


def test_an_evicted_file_stays_readable_for_who_holds_a_lease(open_tier, kv):
    tier, chunk = open_tier(), kv.chunk(1)
    store(tier, chunk)
    lease = tier.lease(chunk.ref)
    tier.discard(chunk.ref.key)
    assert torch.equal(lease.whole().pages, chunk.pages)
    lease.release()
    assert tier.lease(chunk.ref) is None


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_file_is_a_miss_set_aside_and_never_wrong_bytes(data, open_tier, kv, tmp_path):
    tier, chunk = open_tier(), kv.chunk(1)
    store(tier, chunk)
    (path,) = files(tmp_path)
    content = bytearray(path.read_bytes())
    kind = data.draw(st.sampled_from(["flip", "truncate", "empty", "grow", "foreign"]))
    if kind == "flip":
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "truncate":
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    elif kind == "empty":
        content.clear()
    elif kind == "grow":
        content += b"x"
    else:
        content[:] = data.draw(st.binary(max_size=200))
    path.write_bytes(content)
    try:
        found = read(tier, chunk)
    except ChunkUnreadable:
        found = None
    # A flipped bit in a comment-like place of the header may go unnoticed, a wrong byte may not.
    assert found is None or torch.equal(found, chunk.pages)
    if found is None:
        assert not path.exists()
        assert tier.unreadable == 1
        store(tier, chunk)
        assert torch.equal(read(tier, chunk), chunk.pages)
    tier.close()
    for leftover in [*files(tmp_path), *(tmp_path / "kv" / "quarantine").iterdir()]:
        leftover.unlink()


def test_quarantine_is_bounded_and_counted(open_tier, kv, tmp_path):
    tier = open_tier()
    for i in range(20):
        store(tier, kv.chunk(i))
        files(tmp_path)[0].write_bytes(b"broken")
        assert read(tier, kv.chunk(i)) is None
    kept = list((tmp_path / "kv" / "quarantine").iterdir())
    assert len(kept) == 16
    assert tier.stats().used_bytes == sum(f.stat().st_blocks * 512 for f in kept)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_disk_that_refuses_costs_one_line_and_no_request(
    open_tier, kv, monkeypatch, caplog, code
):
    tier = open_tier()

    def refuse(*args):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("kvweave.kv.tiers.ssd._write_file", refuse)
    store(tier, *(kv.chunk(i) for i in range(5)))
    assert tier.stats().used_bytes == 0
    assert tier.dropped_writes == 5
    assert len([r for r in caplog.records if "cannot write" in r.message]) == 1


def test_a_folder_removed_while_running_is_a_miss_not_an_error(open_tier, kv, tmp_path):
    import shutil

    tier, chunk = open_tier(), kv.chunk(1)
    store(tier, chunk)
    shutil.rmtree(tmp_path / "kv")
    assert read(tier, chunk) is None
    store(tier, kv.chunk(2))
    assert tier.stats().used_bytes == 0
    tier._no_writes_before = 1e-9  # the pause is over
    store(tier, kv.chunk(3))
    assert torch.equal(read(tier, kv.chunk(3)), kv.chunk(3).pages)


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path, kv):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        SSDTier(tmp_path / "file" / "kv", 10**6, make_policy("lru"), kv.format)


def test_waiting_writes_are_bounded(open_tier, kv, monkeypatch):
    import threading

    gate = threading.Event()
    from kvweave.kv.tiers import ssd

    write = ssd._write_file

    def slow(*args):
        gate.wait(10)
        write(*args)

    monkeypatch.setattr("kvweave.kv.tiers.ssd._write_file", slow)
    tier = open_tier(max_pending_bytes=3 * kv.format.nbytes(10))
    for i in range(8):
        tier.put(kv.chunk(i))
    assert tier.dropped_writes == 5
    gate.set()
    tier.flush()
    assert tier.stats().chunks == 3
