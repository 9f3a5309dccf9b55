"""Processes that are killed while they write: the store opens, verifies, and keeps its limit."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

CAPACITY = 300_000
KILLS = 50


@pytest.fixture
def check(peers, faults, tmp_path):
    """Asserts that the folder is sound, and returns how many of the chunks `seeds` are in it."""
    folder = tmp_path / "kv"

    def check(seeds: Sequence[int]) -> int:
        assert faults.disk_usage(folder) <= CAPACITY
        tier = peers.open_tier(folder, CAPACITY)
        try:
            found = [peers.read(tier, seed) for seed in seeds]
            assert set(found) <= {"hit", "miss"}
            assert list((folder / "tmp").iterdir()) == []
            assert list((folder / "quarantine").iterdir()) == []
            assert tier.stats().chunks == found.count("hit")
            assert tier.stats().used_bytes == file_bytes(folder)
            tier.put(peers.chunk(10**6))
            tier.flush()
            assert peers.read(tier, 10**6) == "hit"
            tier.discard(peers.chunk(10**6).ref.key)
            assert faults.disk_usage(folder) <= CAPACITY
        finally:
            tier.close()
        return found.count("hit")

    return check


def file_bytes(folder):
    return sum(f.stat().st_blocks * 512 for f in folder.rglob("*/*") if f.is_file())


def test_the_store_survives_being_killed_fifty_times_in_a_row(tmp_path, nursery, check):
    folder, rng, found = tmp_path / "kv", random.Random(3), 0
    for n in range(KILLS):
        writer = nursery.fork(
            "write_without_end", root=str(folder), capacity=CAPACITY, first=n % 5 * 50
        )
        time.sleep(rng.uniform(0.005, 0.1))
        nursery.kill(writer)
        found += check(range(500))
    assert found > KILLS


@pytest.mark.parametrize("rewrite_journal", [False, True])
def test_a_process_may_be_killed_at_any_step_of_a_write(
    tmp_path, nursery, check, peers, faults, rewrite_journal
):
    """Before and in the middle of every single call, from opening the folder on; and another
    process that goes on living always knows of all bytes, and keeps the limit too."""
    folder, log = tmp_path / "kv", tmp_path / "log"
    survivor = peers.open_tier(folder, CAPACITY)
    seeds = list(range(40))
    for seed in seeds:  # more than fit, so that each write evicts
        survivor.put(peers.chunk(seed))
    survivor.flush()
    step = 0
    while True:
        first = 100 + 2 * step
        seeds += [first, first + 1, 10_000 + step]
        writer = nursery.fork(
            "write_until_step",
            root=str(folder),
            capacity=CAPACITY,
            first=first,
            last_step=step,
            log=str(log),
            rewrite_journal=rewrite_journal,
        )
        code = nursery.wait(writer)
        assert faults.disk_usage(folder) <= CAPACITY
        survivor.put(peers.chunk(10_000 + step))
        survivor.flush()
        assert survivor.stats().used_bytes >= file_bytes(folder)
        assert faults.disk_usage(folder) <= CAPACITY
        assert peers.read(survivor, 10_000 + step) == "hit"
        if code == 0:
            break
        assert code == -9
        step += 1
    steps = log.read_text().splitlines()
    assert {"mkdir", "open", "write", "write to the file", "fsync", "rename", "unlink"} <= set(
        steps
    )
    assert survivor.unreadable == survivor.dropped_writes == 0
    survivor.close()
    assert check(seeds) > 10
