"""Each way in which a disk or a file can be bad, by itself: a miss, and the right one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time

import pytest
import torch

from kvweave.kv import ChunkUnreadable, SSDTier, make_policy


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kv"


@pytest.fixture
def open_tier(folder, kv):
    tiers = []

    def open_(capacity=10**7, **kwargs):
        tiers.append(SSDTier(folder, capacity, make_policy("lru"), kv.format, **kwargs))
        return tiers[-1]

    yield open_
    for tier in tiers:
        tier.close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr("kvweave.kv.tiers.ssd._RETRY_SECONDS", 0.2)


def store(tier, *chunks):
    for chunk in chunks:
        tier.put(chunk)
    tier.flush()


def read(tier, chunk):
    """Whether the chunk is there, bit for bit; None for a miss."""
    lease = tier.lease(chunk.ref)
    if lease is None:
        return None
    try:
        return torch.equal(lease.whole().pages, chunk.pages)
    except ChunkUnreadable:
        return None
    finally:
        lease.release()


def failing(monkeypatch, name, code, folder):
    """Let `os.name` fail for what lies in the folder, until the patch is undone."""
    call = getattr(os, name)

    def fail(path, *args, **kwargs):
        if str(path).startswith(str(folder)):
            raise OSError(code, os.strerror(code))
        return call(path, *args, **kwargs)

    monkeypatch.setattr(os, name, fail)


def file_bytes(folder):
    return sum(f.stat().st_blocks * 512 for f in folder.glob("??/*"))


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM, errno.EACCES, errno.ESTALE])
def test_a_file_that_cannot_be_opened_now_is_left_for_later(open_tier, kv, folder, caplog, code):
    """A process out of descriptors must not throw away a whole cache."""
    tier, chunks = open_tier(), [kv.chunk(i) for i in range(5)]
    store(tier, *chunks)
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, "open", code, folder)
        assert [read(tier, chunk) for chunk in chunks] == [None] * 5
    assert len([r for r in caplog.records if "left where it is" in r.message]) == 1
    assert tier.unreadable == 5
    assert [read(tier, chunk) for chunk in chunks] == [True] * 5


def test_a_file_on_a_bad_sector_is_set_aside(open_tier, kv, folder, monkeypatch):
    tier, chunk = open_tier(), kv.chunk(1)
    store(tier, chunk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "preadv", lambda *args: (_ for _ in ()).throw(OSError(errno.EIO, "bad")))
        assert read(tier, chunk) is None
    assert not tier.contains(chunk.ref.key)
    store(tier, chunk)
    assert read(tier, chunk)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EIO])
def test_files_that_cannot_be_deleted_go_on_counting(open_tier, kv, folder, faults, caplog, code):
    """Otherwise the limit would be passed as soon as writing works again."""
    tier = open_tier(capacity=120_000)
    store(tier, *(kv.chunk(i) for i in range(20)))
    held = tier.stats()
    assert held.used_bytes == file_bytes(folder)
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, "unlink", code, folder)
        store(tier, *(kv.chunk(i) for i in range(20, 30)))
        tier.clear()
        assert tier.stats() == held
    assert tier.dropped_writes == 10
    assert len([r for r in caplog.records if "cannot write" in r.message]) == 1
    time.sleep(0.25)
    store(tier, kv.chunk(50))
    assert read(tier, kv.chunk(50))
    assert tier.stats().used_bytes == file_bytes(folder)
    assert faults.disk_usage(folder) <= 120_000


def test_a_file_that_cannot_be_set_aside_goes_on_counting(open_tier, kv, folder):
    tier, chunk = open_tier(), kv.chunk(1)
    store(tier, chunk)
    (path,) = folder.glob("??/*")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, "rename", errno.EROFS, folder)
        assert read(tier, chunk) is None
    assert tier.stats().used_bytes == file_bytes(folder) > 0
    assert read(tier, chunk) is None
    assert tier.stats().used_bytes == sum(
        f.stat().st_blocks * 512 for f in (folder / "quarantine").iterdir()
    )


def test_one_file_that_cannot_be_deleted_does_not_stop_eviction(open_tier, kv, folder):
    tier = open_tier(capacity=120_000)
    store(tier, *(kv.chunk(i) for i in range(20)))
    oldest = min(folder.glob("??/*"), key=lambda path: path.stat().st_mtime)
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, "unlink", errno.EPERM, oldest)
        store(tier, kv.chunk(20), kv.chunk(21))
    assert read(tier, kv.chunk(20)) and read(tier, kv.chunk(21))
    assert oldest.exists()


def bad_header(change):
    """Rewrites the header of a chunk file, keeping its length."""

    def apply(content):
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        changed = change(header)
        text = changed if isinstance(changed, bytes) else json.dumps(header).encode()
        return content[:8] + text.ljust(length)[:length] + content[8 + length :]

    return apply


@pytest.mark.parametrize(
    "damage",
    [
        bad_header(lambda h: h["token_ids"].update(shape=[10**15])),
        bad_header(lambda h: h["token_ids"].update(shape=[-1])),
        bad_header(lambda h: h["kv"].update(data_offsets=[0.18432])),
        bad_header(lambda h: h["kv"].update(shape=[3.0, h["kv"]["shape"][1]])),
        bad_header(lambda h: h["kv"].update(shape=[0, 0], data_offsets=[0, 0])),
        bad_header(lambda h: h["__metadata__"].update(recompute_seconds="nan")),
        bad_header(lambda h: h["__metadata__"].update(recompute_seconds="-inf")),
        bad_header(lambda h: h["__metadata__"].update(dtype="torch.save")),
        bad_header(lambda h: h["__metadata__"].update(shape="[" * 900 + "]" * 900)),
        bad_header(lambda h: h["__metadata__"].update(shape="[1]")),
        bad_header(lambda h: b"[" * 4000),
        bad_header(lambda h: b'{"__metadata__": 5}'),
        lambda content: (10**18).to_bytes(8, "little") + content[8:],
    ],
)
def test_no_header_is_too_broken_to_be_a_miss(open_tier, kv, folder, damage):
    tier, chunk = open_tier(), kv.chunk(1)
    store(tier, chunk)
    (path,) = folder.glob("??/*")
    path.write_bytes(damage(path.read_bytes()))
    assert read(tier, chunk) is None
    assert tier.unreadable == 1
    store(tier, chunk)
    assert read(tier, chunk)


@pytest.mark.parametrize("direct_io", [False, True])
def test_reads_that_return_less_are_continued(open_tier, kv, monkeypatch, direct_io):
    tier, chunk = open_tier(direct_io=direct_io), kv.chunk(1, tokens=300)
    store(tier, chunk)
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, n, at: pread(fd, max(1, n // 2), at))
    monkeypatch.setattr(os, "preadv", lambda fd, bufs, at: preadv(fd, [bufs[0][:4096]], at))
    assert read(tier, chunk)
    assert tier.unreadable == 0


def test_a_file_system_that_refuses_direct_reads_is_read_plainly(open_tier, kv, monkeypatch):
    import fcntl

    preadv = os.preadv

    def refuse(fd, buffers, offset):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no direct reads here")
        return preadv(fd, buffers, offset)

    tier, chunk = open_tier(direct_io=True), kv.chunk(1)
    store(tier, chunk)
    monkeypatch.setattr(os, "preadv", refuse)
    assert read(tier, chunk)
    assert tier.unreadable == 0


def test_a_read_that_hangs_is_a_miss_and_the_disk_is_left_alone_for_a_while(
    open_tier, kv, monkeypatch, caplog
):
    """Neither the request nor the release of its lease waits for it, and the file stays."""
    monkeypatch.setattr("kvweave.kv.tiers.reading.PATIENCE_SECONDS", 0.2)
    tier, chunk = open_tier(), kv.chunk(1)
    store(tier, chunk)
    gate, preadv = threading.Event(), os.preadv

    def hang(*args):
        gate.wait(10)
        return preadv(*args)

    monkeypatch.setattr(os, "preadv", hang)
    started = time.monotonic()
    assert read(tier, chunk) is None
    assert time.monotonic() - started < 2
    assert tier.lease(chunk.ref) is None
    assert tier.contains(chunk.ref.key)
    assert "has not come" in caplog.text
    gate.set()
    time.sleep(0.3)
    assert read(tier, chunk)


def test_a_lease_on_a_bad_file_does_not_take_its_successor_away(open_tier, kv, folder):
    tier, chunk = open_tier(), kv.chunk(1)
    store(tier, chunk)
    (path,) = folder.glob("??/*")
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    leases = [tier.lease(chunk.ref) for _ in range(2)]
    with pytest.raises(ChunkUnreadable):
        leases[0].whole()
    store(tier, chunk)
    with pytest.raises(ChunkUnreadable):
        leases[1].whole()
    for lease in leases:
        lease.release()
    assert read(tier, chunk)


def test_an_error_that_nobody_thought_of_does_not_end_writing(open_tier, kv, folder, monkeypatch):
    def run_out(*args):
        raise RuntimeError("out of memory")

    tier = open_tier()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvweave.kv.tiers.ssd.write_chunk", run_out)
        store(tier, kv.chunk(1))
    assert tier.dropped_writes == 1
    assert tier.stats().used_bytes == 0
    assert list((folder / "tmp").iterdir()) == []
    store(tier, kv.chunk(2))
    assert read(tier, kv.chunk(2))


def test_without_memory_to_read_into_it_is_a_miss(open_tier, kv, monkeypatch):
    def refuse(*args):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    tier = open_tier()
    store(tier, kv.chunk(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvweave.kv.tiers.buffers.BufferPool.lend", refuse)
        assert read(tier, kv.chunk(1)) is None
    assert read(tier, kv.chunk(1))


def test_a_lease_is_of_no_use_after_its_release(open_tier, kv):
    tier = open_tier()
    store(tier, kv.chunk(1))
    lease = tier.lease(kv.ref(1))
    lease.whole()
    lease.release()
    with pytest.raises(RuntimeError):
        lease.whole()


def test_a_tier_that_closes_answers_who_still_reads(open_tier, kv):
    tier = open_tier()
    store(tier, kv.chunk(1))
    lease = tier.lease(kv.ref(1))
    tier.close()
    assert torch.equal(lease.whole().pages, kv.chunk(1).pages)
    lease.release()


def test_a_part_of_the_folder_that_is_removed_is_made_anew(open_tier, kv, folder):
    tier = open_tier()
    store(tier, kv.chunk(1))
    for part in ("tmp", "quarantine"):
        shutil.rmtree(folder / part)
    store(tier, kv.chunk(2))  # fails, and is noticed
    time.sleep(0.25)
    store(tier, kv.chunk(3))
    assert read(tier, kv.chunk(1)) and read(tier, kv.chunk(3))
    (folder / "quarantine").rmdir()


def test_a_folder_that_cannot_be_made_again_costs_no_descriptors(open_tier, kv, folder):
    tier = open_tier()
    store(tier, kv.chunk(1))
    shutil.rmtree(folder)
    folder.write_text("in the way")
    store(tier, kv.chunk(2))
    before = os.listdir("/proc/self/fd")
    for i in range(3):
        time.sleep(0.25)
        store(tier, kv.chunk(3 + i))
        assert read(tier, kv.chunk(1)) is None
    assert len(os.listdir("/proc/self/fd")) <= len(before)
    folder.unlink()
    time.sleep(0.25)
    store(tier, kv.chunk(9))
    assert read(tier, kv.chunk(9))


def test_folders_and_journal_count_too(open_tier, kv, folder, faults):
    """A limit of many small files is kept as `du` sees it."""
    tier = open_tier(capacity=200_000)
    for i in range(40):
        store(tier, kv.chunk(i, tokens=1 + i % 20))
        assert faults.disk_usage(folder) <= 200_000
    assert tier.stats().chunks > 5
    assert faults.disk_usage(folder) > 120_000
