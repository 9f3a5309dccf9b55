"""Disks fail, requests do not: random faults under four threads of requests."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
import time
from collections import Counter

import pytest
import torch

from kvweave.kv import (
    ChunkCache,
    ChunkUnreadable,
    KVFormat,
    KVLayout,
    MemoryTier,
    SSDTier,
    make_policy,
)

CHUNKS, PER_REQUEST, THREADS = 200, 8, 4
POPULARITY = [1 / (rank + 1) ** 1.2 for rank in range(CHUNKS)]
FORMAT = KVFormat(KVLayout(layers=2, kv_heads=2, head_dim=4, dtype=torch.float32))
MEMORY_PAGES = {"gpu": 40, "cpu": 60}
SSD_BYTES = 2_500_000
KINDS = "error delay short flip lost refused broken EIO ENOSPC EACCES EROFS EMFILE".split()


def make_cache(folder, faults, disk, **ssd):
    memory = [
        MemoryTier(
            name,
            pages * FORMAT.nbytes(16),
            make_policy("lru"),
            FORMAT,
            keep_evicted=name == "gpu",
        )
        for name, pages in MEMORY_PAGES.items()
    ]
    tiers = [faults.FaultyTier(tier, disk) for tier in memory]
    return ChunkCache(
        [*tiers, SSDTier(folder, SSD_BYTES, make_policy("lru"), FORMAT, **ssd)], FORMAT
    )


class Workload:
    """Requests for chunks whose every byte is known, and what became of them."""

    def __init__(self, kv, cache):
        self._cache = cache
        self._known = []
        for seed in range(CHUNKS):
            tokens = 4 + seed * 7 % 40
            content = torch.randn(
                FORMAT.layout.shape(tokens), generator=torch.Generator().manual_seed(seed)
            )
            self._known.append((kv.ref(seed, tokens), content))
        self.problems = []

    def run(self, requests, seed):
        """The hits by tier of this many requests."""
        rng, hits = random.Random(seed), Counter()
        for _ in range(requests):
            chosen = rng.choices(self._known, POPULARITY, k=PER_REQUEST)
            try:
                self._request(chosen, rng, hits)
            except Exception as error:
                self.problems.append(f"a request failed: {error!r}")
        return hits

    def run_in_threads(self, requests, seed):
        def work(n):
            self.run(requests // THREADS, seed + n)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _request(self, chosen, rng, hits):
        """As the engine does: look everything up, read layer by layer, then refill and release."""
        found, missing = [], []
        try:
            for ref, content in chosen:
                lease = self._cache.lookup(ref).lease
                if lease is None:
                    missing.append((ref, content))
                else:
                    found.append((lease, content))
            if rng.random() < 0.02:
                return  # the client has gone
            if rng.random() < 0.5:
                for layer in range(FORMAT.layout.layers):
                    for lease, _ in found:
                        lease.prefetch(layer)
            for lease, content in found:
                try:
                    self._read(lease, content, rng)
                    hits[lease.tier] += 1
                except ChunkUnreadable:
                    self._cache.note_unreadable(lease.ref)
                    missing.append((lease.ref, content))
            for lease, _ in found:
                self._cache.refill(lease)
        finally:
            for lease, _ in found:
                lease.release()
        for ref, content in missing:
            self._cache.put(ref, content, 0.1)

    def _read(self, lease, content, rng):
        layers = rng.choice(([0, 1], [1], [0]))  # a selector's probe reads some first
        read = torch.full_like(content, float("nan"))
        for layer in layers:
            lease.read_layer(layer, read[layer, 0], read[layer, 1])
            if not torch.equal(read[layer], content[layer]):
                self.problems.append(f"wrong bytes of layer {layer} from {lease.tier}")


class Watch:
    """Looks at the limits again and again, and now and then takes the folder away."""

    def __init__(self, cache, folder, faults, disk, problems):
        self._cache, self._folder, self._faults, self._disk = cache, folder, faults, disk
        self._problems = problems
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.samples = self.removals = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._done.set()
        self._thread.join()

    def _run(self):
        while not self._done.wait(0.02):
            with self._disk.spared():
                self._look()
                if self.samples % 25 == 10:
                    self._take_away()

    def _look(self):
        self.samples += 1
        for name, stats in self._cache.stats().items():
            if stats.used_bytes > stats.capacity_bytes:
                self._problems.append(f"{name} is over its limit: {stats}")
        used = self._faults.disk_usage(self._folder)
        if used > SSD_BYTES:
            self._problems.append(f"du is over the limit: {used}")

    def _take_away(self):
        """Removed for good, or gone for a moment as when a disk is mounted anew."""
        self.removals += 1
        if self.removals % 2:
            shutil.rmtree(self._folder, ignore_errors=True)
        elif self._folder.exists():
            elsewhere = self._folder.with_name("elsewhere")
            os.rename(self._folder, elsewhere)
            time.sleep(0.02)
            while elsewhere.exists():
                shutil.rmtree(self._folder, ignore_errors=True)  # if it was begun anew meanwhile
                with contextlib.suppress(OSError):
                    os.rename(elsewhere, self._folder)


@pytest.mark.parametrize(("direct_io", "requests"), [(False, 9200), (True, 800)])
def test_no_fault_of_the_disk_reaches_a_request(
    tmp_path, kv, faults, monkeypatch, caplog, direct_io, requests
):
    """Not one wrong byte, not one failed request, all limits hold, and hits come back."""
    caplog.set_level("CRITICAL")
    monkeypatch.setattr("kvweave.kv.tiers.ssd._RETRY_SECONDS", 0.05)
    files = len(os.listdir("/proc/self/fd"))
    folder = tmp_path / "kv"
    disk = faults.FaultyDisk(folder, seed=7, share=0.02)
    disk.install(monkeypatch)
    cache = make_cache(folder, faults, disk, direct_io=direct_io)
    work = Workload(kv, cache)
    try:
        before = steady_hits(work)
        with Watch(cache, folder, faults, disk, work.problems) as watch:
            disk.active = True
            work.run_in_threads(requests, seed=100)
            disk.active = False
        time.sleep(0.1)  # writing pauses after an error
        after = steady_hits(work)
        cache.clear()
        assert all(stats.used_bytes == 0 for name, stats in cache.stats().items() if name != "ssd")
    finally:
        cache.close()
    assert work.problems == []
    assert len(os.listdir("/proc/self/fd")) <= files
    assert watch.samples > requests / 80  # looked at often, also on a busy machine
    assert watch.removals >= 1
    assert all(disk.counts[kind] for kind in KINDS)
    assert after.total() >= 0.97 * before.total()
    assert after["ssd"] >= 0.9 * before["ssd"]


def steady_hits(work):
    work.run(200, seed=1)
    time.sleep(0.3)  # what is being written
    return work.run(200, seed=2)
