"""Loading beside computing: time to first token from the `ssd` tier, overlap on and off.

    python benchmarks/overlap.py --rounds 5

In one run: what computing alone takes (chunks in the `gpu` tier), what loading alone takes, and
both together with `pipeline_overlap` on and off. With it on, a prompt should take about the longer
of the two; without, about their sum. A fast disk hides behind any CPU, so the same is measured once
more with reads slowed down to `--slow-disk` MB/s, where loading takes about as long as computing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from unittest import mock

from ttft_by_tier import Workload, build, ttft

from kvweave.engine.embedded import EmbeddedEngine
from kvweave.kv.tiers import reading


class SlowDisk:
    """`read_exactly` as on a disk that gives all readers together `bytes_per_second`."""

    def __init__(self, bytes_per_second: float) -> None:
        self._speed = bytes_per_second
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._read = reading.read_exactly

    def __call__(self, fd: int, out: memoryview, offset: int, *, direct: bool) -> None:
        with self._lock:
            self._free_at = max(self._free_at, time.perf_counter()) + len(out) / self._speed
            done_at = self._free_at
        self._read(fd, out, offset, direct=direct)
        time.sleep(max(0.0, done_at - time.perf_counter()))


async def median_ttft(
    engine: EmbeddedEngine, workload: Workload, rounds: int
) -> tuple[float, float]:
    """Median seconds to the first token, and of loading as the request itself saw it."""
    seconds, loads = [], []
    for _ in range(rounds):
        took, report = await ttft(engine, workload.prompt(), "blend")
        seconds.append(took)
        loads.append(report["time_ms"]["load"] / 1e3)
    return statistics.median(seconds), statistics.median(loads)


async def measure(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    async def run(gpu: float, overlap: bool) -> tuple[float, float]:
        engine = build(folder / f"{gpu}-{overlap}", args.model, gpu, 0.0, overlap)
        try:
            workload = Workload(engine, args.tokens, args.chunks)
            await engine.warm(workload.prefix, workload.chunks)
            await asyncio.sleep(1)
            await ttft(engine, workload.prompt(), "blend")
            return await median_ttft(engine, workload, args.rounds)
        finally:
            engine.stop()

    compute, _ = await run(1.0, True)
    on, _ = await run(0.0, True)
    # Without overlap everything is brought in before the first layer, so this is loading alone
    # (twice unpacked, as the probe needs it as well).
    off, load = await run(0.0, False)
    return {"compute": compute, "load": load, "on": on, "off": off}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slow-disk", type=float, default=120.0, metavar="MB/S")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for disk, speed in (("this disk", None), (f"{args.slow_disk:.0f} MB/s", args.slow_disk * 1e6)):
        with tempfile.TemporaryDirectory() as folder:
            patch = mock.patch.object(reading, "read_exactly", SlowDisk(speed or 1e18))
            with patch:
                row = asyncio.run(measure(args, Path(folder)))
        longer = max(row["load"], row["compute"])
        rows.append(
            {
                "disk": disk,
                **{f"{name}_ms": round(seconds * 1e3) for name, seconds in row.items()},
                "on_over_longer": round(row["on"] / longer, 2),
                "off_over_sum": round(row["off"] / (row["load"] + row["compute"]), 2),
            }
        )
    if args.json:
        print(json.dumps(rows))
        return
    print(f"{'disk':12}{'compute':>9}{'load':>8}{'on':>8}{'off':>8}   on/max  off/sum")
    for row in rows:
        print(
            f"{row['disk']:12}{row['compute_ms']:9}{row['load_ms']:8}{row['on_ms']:8}{row['off_ms']:8}"
            f"{row['on_over_longer']:9}{row['off_over_sum']:9}"
        )


if __name__ == "__main__":
    main()
