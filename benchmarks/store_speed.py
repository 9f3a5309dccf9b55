"""How near the tiers come to what the machine itself can do.

    python benchmarks/store_speed.py --folder /path/on/the/disk

Chunk KV of a 7B model's shape (32 layers, 8 KV heads of 128, bf16) is written once. Then, in turns
and with the page cache dropped before each, the same bytes are read plainly (as fio would: several
threads, large blocks), through the `ssd` tier in order, and layer by layer across all chunks; and
copied plainly in memory, and through a memory tier. Layer by layer, they are verified and unpacked
into the model's layout. Memory is copied by one thread. Figures are ratios within this run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from kvweave.kv import (
    ChunkKV,
    KVFormat,
    KVLayout,
    MemoryTier,
    SSDTier,
    chunk_ref,
    make_policy,
)

LAYOUT = KVLayout(layers=32, kv_heads=8, head_dim=128, dtype=torch.bfloat16)
BLOCK = 1 << 20
THREADS = 4


def drop(paths: list[Path]) -> None:
    """Out of the page cache, as far as the system allows."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read_plainly(paths: list[Path]) -> None:
    """Every byte of these files, `THREADS` at a time, in blocks of 1 MiB."""

    def read(path: Path) -> None:
        buffer = bytearray(BLOCK)
        fd = os.open(path, os.O_RDONLY)
        offset = 0
        while count := os.preadv(fd, [buffer], offset):
            offset += count
        os.close(fd)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, paths))


def timed(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def measure(folder: Path, chunks: int, tokens: int, rounds: int) -> list[dict]:
    fmt = KVFormat(LAYOUT)
    total = chunks * fmt.nbytes(tokens)
    refs = [chunk_ref("model", "", (), range(i, i + tokens)) for i in range(chunks)]
    kv = torch.randn(LAYOUT.shape(tokens)).to(LAYOUT.dtype)
    pages = fmt.encode(kv)
    tiers = {
        direct: SSDTier(
            folder, 10 * total, make_policy("lru"), fmt, direct_io=direct, io_threads=THREADS
        )
        for direct in (False, True)
    }
    for ref in refs:
        tiers[False].put(ChunkKV(ref, pages))
        tiers[False].flush()
    memory = MemoryTier("cpu", total + fmt.nbytes(tokens), make_policy("lru"), fmt)
    for ref in refs:
        memory.put(ChunkKV(ref, pages))
    paths = sorted(folder.glob("??/*.safetensors"))
    keys, values = torch.empty(2, *kv.shape[2:], dtype=kv.dtype)
    source, target = torch.zeros(2, total, dtype=torch.uint8)

    def in_order(tier: SSDTier) -> None:
        leases = [tier.lease(ref) for ref in refs]
        for lease in leases:
            for layer in range(LAYOUT.layers):
                lease.prefetch(layer)
        for lease in leases:
            for layer in range(LAYOUT.layers):
                lease.wait(layer)
            lease.release()

    def by_layer(tier: SSDTier | MemoryTier) -> None:
        leases = [tier.lease(ref) for ref in refs]
        for layer in range(LAYOUT.layers):
            for lease in leases:
                lease.prefetch(layer)
        for layer in range(LAYOUT.layers):
            for lease in leases:
                lease.read_layer(layer, keys, values)
        for lease in leases:
            lease.release()

    def copy_plainly() -> None:
        target.copy_(source)

    arms: dict[str, tuple[Callable[[], None], str]] = {
        "plain reads": (lambda: read_plainly(paths), ""),
        "ssd tier, in order": (lambda: in_order(tiers[False]), "plain reads"),
        "ssd tier, layer by layer": (lambda: by_layer(tiers[False]), "plain reads"),
        "ssd tier, in order, direct I/O": (lambda: in_order(tiers[True]), "plain reads"),
        "ssd tier, layer by layer, direct I/O": (lambda: by_layer(tiers[True]), "plain reads"),
        "memcpy": (copy_plainly, ""),
        "cpu tier, layer by layer": (lambda: by_layer(memory), "memcpy"),
    }
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, (action, _) in arms.items():
            drop(paths)
            times[name].append(timed(action))
    for tier in tiers.values():
        tier.close()
    rows = []
    for name, (_, against) in arms.items():
        seconds = statistics.median(times[name])
        share = statistics.median(times[against]) / seconds if against else 1.0
        rows.append(
            {
                "arm": name,
                "gb_per_s": round(total / seconds / 1e9, 2),
                "against": against,
                "share": round(share, 2),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to put the files; default: temporary")
    parser.add_argument("--chunks", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        rows = measure(Path(folder), args.chunks, args.tokens, args.rounds)
    if args.json:
        print(json.dumps(rows))
        return
    for row in rows:
        share = f"{row['share']:.0%} of {row['against']}" if row["against"] else ""
        print(f"{row['arm']:40}{row['gb_per_s']:8.2f} GB/s   {share}")


if __name__ == "__main__":
    main()
