"""Several processes on one folder: they see each other's chunks, and none harms another."""

from __future__ import annotations

import itertools
import signal
import threading
import time

import pytest

CAPACITY = 400_000


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kv"


@pytest.fixture
def join(folder, nursery):
    """Starts a process with a tier on the folder."""
    joined = []

    def join():
        joined.append(nursery.peer(folder, CAPACITY))
        return joined[-1]

    yield join
    for peer in joined:
        if peer.alive:
            peer.close()


@pytest.fixture
def tier(folder, peers):
    """A tier of this process on the same folder."""
    tier = peers.open_tier(folder, CAPACITY)
    yield tier
    tier.close()


def wait_until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it has not come about"
        time.sleep(0.02)


class Sampler:
    """Measures the folder again and again, meanwhile."""

    def __init__(self, faults, folder):
        self.largest = self.samples = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(faults, folder))

    def _run(self, faults, folder):
        while not self._done.wait(0.005):
            self.largest = max(self.largest, faults.disk_usage(folder))
            self.samples += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._done.set()
        self._thread.join()


def test_each_sees_what_the_other_stored(join):
    one, other = join(), join()
    one.do("put", seeds=[1, 2])
    other.do("put", seeds=[3])
    assert other.do("read", seeds=[1, 2, 3]) == ["hit"] * 3
    assert one.do("read", seeds=[1, 2, 3]) == ["hit"] * 3


def test_what_another_process_stored_is_known_within_seconds(join, tier, peers):
    """So that it is neither computed nor written again."""
    join().do("put", seeds=[1])
    wait_until(lambda: tier.contains(peers.chunk(1).ref.key))
    assert tier.stats().chunks == 1


def test_a_chunk_that_both_store_is_there_once(join, tier, peers):
    join().do("put", seeds=[1])
    tier.put(peers.chunk(1))
    tier.flush()
    assert tier.stats().chunks == 1
    assert tier.dropped_writes == 0
    assert peers.read(tier, 1) == "hit"


def test_the_limit_holds_for_both_together_at_every_moment(join, faults, folder):
    one, other = join(), join()
    with Sampler(faults, folder) as sampler:
        for seed, peer in enumerate((one, other)):
            peer.start("work", seconds=2.5, seed=seed, chunks=60)
        counts = [one.result(), other.result()]
    assert 0.7 * CAPACITY < sampler.largest <= CAPACITY
    assert sampler.samples > 20
    for count in counts:
        assert min(count["hit"], count["miss"]) > 20
        assert not count.keys() & {"wrong", "unreadable"}
        assert count["over the limit"] == count["dropped"] == 0


def test_clearing_in_one_is_a_miss_in_the_other_and_no_error(join, tier, peers):
    other = join()
    other.do("put", seeds=[1, 2])
    lease = tier.lease(peers.chunk(1).ref)
    assert other.do("clear") == 2
    assert lease.whole().pages.equal(peers.chunk(1).pages)  # it was being used
    lease.release()
    assert peers.read(tier, 1) == peers.read(tier, 2) == "miss"
    assert tier.unreadable == 0
    assert tier.stats().used_bytes == 0


def test_clearing_again_and_again_under_work_is_never_an_error(join):
    one, other = join(), join()
    one.start("work", seconds=1.5, seed=1, chunks=20)
    cleared = 0
    for _ in range(10):
        cleared += other.do("clear")
        time.sleep(0.1)
    counts = one.result()
    assert cleared > 10
    assert counts["hit"] > 0
    assert not counts.keys() & {"wrong", "unreadable"}


def test_killing_one_at_work_does_not_stop_the_other(join, faults, folder):
    survivor = join()
    survivor.start("work", seconds=4.0, seed=0, chunks=60)
    with Sampler(faults, folder) as sampler:
        for seed in range(10):
            victim = join()
            victim.start("work", seconds=60.0, seed=seed, chunks=60)
            time.sleep(0.1 + seed * 0.013)
            victim.kill()
    counts = survivor.result()
    assert counts["hit"] > 20
    assert counts["dropped"] == 0
    assert not counts.keys() & {"wrong", "unreadable"}
    assert sampler.largest <= CAPACITY
    survivor.do("put", seeds=list(range(60, 64)))
    assert list((folder / "tmp").iterdir()) == []  # what the killed ones were writing


def test_the_lock_of_a_killed_process_is_free(join, tier, peers):
    victim = join()
    victim.do("hold_the_lock")
    victim.kill()
    started = time.monotonic()
    tier.put(peers.chunk(1))
    tier.flush()
    assert time.monotonic() - started < 2
    assert peers.read(tier, 1) == "hit"


def test_a_process_that_stops_with_the_lock_held_stops_nobody_else(join, tier, peers, monkeypatch):
    """Hits go on as ever, and what cannot be written is given up."""
    monkeypatch.setattr("kvweave.kv.tiers.journal._PATIENCE_SECONDS", 4.0)
    monkeypatch.setattr("kvweave.kv.tiers.ssd._RETRY_SECONDS", 0.2)
    tier.put(peers.chunk(1))
    tier.flush()
    stopped = join()
    stopped.do("hold_the_lock")
    stopped.signal(signal.SIGSTOP)
    started = time.monotonic()
    tier.put(peers.chunk(2))
    assert peers.read(tier, 1) == "hit"
    assert peers.read(tier, 2) == "miss"
    assert tier.stats().chunks == 1
    assert time.monotonic() - started < 3.5
    tier.flush()
    assert tier.dropped_writes == 1
    stopped.kill()
    time.sleep(0.25)
    tier.put(peers.chunk(2))
    tier.flush()
    assert peers.read(tier, 2) == "hit"


def test_a_draft_of_a_living_process_is_left_alone_and_counted(folder, tier, peers, monkeypatch):
    """While one writes, others that start or run out of room must not take its file away."""
    from kvweave.kv.tiers import ssd

    gate, write = threading.Event(), ssd._write_file

    def slowly(*args):
        write(*args)
        gate.wait(10)

    monkeypatch.setattr(ssd, "_write_file", slowly)
    tier.put(peers.chunk(1))
    wait_until(lambda: any((folder / "tmp").iterdir()))
    monkeypatch.setattr(ssd, "_write_file", write)
    other = peers.open_tier(folder, CAPACITY)
    assert other.stats().used_bytes >= 4096
    for seed in range(100, 160):
        other.put(peers.chunk(seed))
    other.flush()
    gate.set()
    tier.flush()
    assert tier.dropped_writes == 0
    assert peers.read(other, 1) == "hit"
    other.close()


def test_the_journal_stays_short_and_loses_nothing(folder, peers, monkeypatch):
    monkeypatch.setattr("kvweave.kv.tiers.index._LONG_JOURNAL_BYTES", 10_000)
    one, other, third = (peers.open_tier(folder, CAPACITY) for _ in range(3))
    longest = 0
    for seed, tier in zip(range(120), itertools.cycle([one, other]), strict=False):
        tier.put(peers.chunk(seed))
        tier.flush()
        longest = max(longest, (folder / "journal").stat().st_size)
    assert longest < 30_000
    for tier in (one, other, third):
        tier.put(peers.chunk(1000))
        tier.flush()
    stats = [tier.stats() for tier in (one, other, third)]
    files = [f.stat().st_blocks * 512 for f in folder.glob("??/*")]
    assert {s.used_bytes for s in stats} == {sum(files)}
    assert {s.chunks for s in stats} == {len(files)}
    for tier in (one, other, third):
        tier.close()


def test_a_torn_or_damaged_line_of_the_journal_is_passed_over(folder, peers):
    one, other = peers.open_tier(folder, CAPACITY), peers.open_tier(folder, CAPACITY)
    one.put(peers.chunk(1))
    one.flush()
    with open(folder / "journal", "ab") as journal:
        journal.write(b"\n-" + peers.chunk(1).ref.key.encode() + b" 0 00000000\n+" + b"ab" * 20)
    one.put(peers.chunk(2))
    one.flush()
    other.put(peers.chunk(3))
    other.flush()
    assert other.stats().chunks == 3
    one.close()
    other.close()


def test_a_folder_made_anew_by_another_process_is_noticed(folder, peers, monkeypatch):
    """Both must then agree on the same files again, not each on its own."""
    import shutil

    monkeypatch.setattr("kvweave.kv.tiers.ssd._RETRY_SECONDS", 0.05)
    one = peers.open_tier(folder, CAPACITY)
    one.put(peers.chunk(1))
    one.flush()
    shutil.rmtree(folder)
    other = peers.open_tier(folder, CAPACITY)
    other.put(peers.chunk(2))
    other.flush()
    assert peers.read(one, 2) == "hit"
    one.put(peers.chunk(3))  # notices
    one.flush()
    time.sleep(0.1)
    one.put(peers.chunk(4))
    one.flush()
    wait_until(lambda: other.contains(peers.chunk(4).ref.key))
    assert one.stats() == other.stats()
    assert peers.read(other, 4) == "hit"
    one.close()
    other.close()
