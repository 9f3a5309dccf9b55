"""Other processes on a cache folder, to share it with and to kill.

Run as a script, this is a nursery: a process with one thread that has imported everything and forks
children on request, in milliseconds.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kvweave.kv import ChunkKV, ChunkUnreadable, KVFormat, KVLayout, SSDTier, chunk_ref, make_policy

FORMAT = KVFormat(KVLayout(layers=2, kv_heads=2, head_dim=4, dtype=torch.float32))


@functools.lru_cache(2000)
def chunk(seed: int) -> ChunkKV:
    """The one right content of chunk `seed`."""
    tokens = 4 + seed * 7 % 40
    ref = chunk_ref("model", "", (1, 2), (seed, *range(1, tokens)))
    generator = torch.Generator().manual_seed(seed)
    return ChunkKV(
        ref, FORMAT.encode(torch.randn(FORMAT.layout.shape(tokens), generator=generator))
    )


def open_tier(root: Path | str, capacity: int) -> SSDTier:
    return SSDTier(Path(root), capacity, make_policy("lru"), FORMAT)


def read(tier: SSDTier, seed: int) -> str:
    """ "hit", "miss", "unreadable" or "wrong"."""
    known = chunk(seed)
    lease = tier.lease(known.ref)
    if lease is None:
        return "miss"
    try:
        return "hit" if torch.equal(lease.whole().pages, known.pages) else "wrong"
    except ChunkUnreadable:
        return "unreadable"
    finally:
        lease.release()


# -- this side: the tests ------------------------------------------------------------------------


class Nursery:
    """The parent of all other processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def fork(self, task: str, **arguments: Any) -> int:
        """Start a function of this module in a new process; returns its id."""
        return self._ask(task=task, arguments=arguments)

    def wait(self, pid: int) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        return self._ask(wait=pid)

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        assert self.wait(pid) == -signal.SIGKILL

    def peer(self, root: Path, capacity: int) -> Peer:
        return Peer(self, self._folder, root, capacity)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)

    def _ask(self, **request: Any) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


class Peer:
    """A process with an `ssd` tier of its own, which does what it is told."""

    _count = 0

    def __init__(self, nursery: Nursery, folder: Path, root: Path, capacity: int) -> None:
        Peer._count += 1
        self.alive = True
        self._nursery = nursery
        pipes = [folder / f"peer-{Peer._count}-{way}" for way in ("in", "out")]
        for pipe in pipes:
            os.mkfifo(pipe)
        self.pid = nursery.fork(
            "serve", root=str(root), capacity=capacity, pipes=[str(pipe) for pipe in pipes]
        )
        self._requests = open(pipes[0], "w")  # noqa: SIM115
        self._answers = open(pipes[1])  # noqa: SIM115

    def start(self, task: str, **arguments: Any) -> None:
        """Begin a `Tasks` method; `result` waits for what it returns."""
        self._requests.write(json.dumps([task, arguments]) + "\n")
        self._requests.flush()

    def result(self) -> Any:
        return json.loads(self._answers.readline())

    def do(self, task: str, **arguments: Any) -> Any:
        self.start(task, **arguments)
        return self.result()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._nursery.kill(self.pid)
        self._leave()

    def close(self) -> None:
        self._requests.close()
        assert self._nursery.wait(self.pid) == 0
        self._leave()

    def _leave(self) -> None:
        self.alive = False
        self._requests.close()
        self._answers.close()


# -- the other side ------------------------------------------------------------------------------


def serve(root: str, capacity: int, pipes: list[str]) -> None:
    with open(pipes[0]) as requests, open(pipes[1], "w") as answers:
        tasks = Tasks(open_tier(root, capacity))
        for line in requests:
            task, arguments = json.loads(line)
            print(json.dumps(getattr(tasks, task)(**arguments)), file=answers, flush=True)
        tasks.tier.close()


class Tasks:
    """What a peer can be told to do."""

    def __init__(self, tier: SSDTier) -> None:
        self.tier = tier

    def put(self, seeds: list[int]) -> None:
        for seed in seeds:
            self.tier.put(chunk(seed))
        self.tier.flush()

    def read(self, seeds: list[int]) -> list[str]:
        return [read(self.tier, seed) for seed in seeds]

    def clear(self) -> int:
        return self.tier.clear()

    def used(self) -> int:
        return self.tier.stats().used_bytes

    def work(self, seconds: float, seed: int, chunks: int) -> dict[str, int]:
        """Ask for chunks as they come, and put those that are missing; counts what happened."""
        rng, counts = random.Random(seed), Counter[str]()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            asked = rng.randrange(chunks)
            found = read(self.tier, asked)
            counts[found] += 1
            if found != "hit":
                self.tier.put(chunk(asked))
            stats = self.tier.stats()
            counts["over the limit"] += stats.used_bytes > stats.capacity_bytes
        self.tier.flush()
        counts["dropped"] = self.tier.dropped_writes
        return counts

    def hold_the_lock(self) -> None:
        """Until killed."""
        import fcntl

        fd = os.open(self.tier._index.root / "lock", os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)


def write_without_end(root: str, capacity: int, first: int) -> None:
    """Store one chunk after the other."""
    tier, seed = open_tier(root, capacity), first
    while True:
        tier.put(chunk(seed))
        seed += 1
        if seed % 4 == 0:
            tier.flush()


def write_until_step(
    root: str, capacity: int, first: int, last_step: int, log: str, rewrite_journal: bool
) -> None:
    """Open a tier and store two chunks; be killed right before step `last_step`.

    A step is a call that changes the folder. Every step taken is written to `log` as a line.
    """
    from kvweave.kv.tiers import index, ssd

    if rewrite_journal:
        index._LONG_JOURNAL_BYTES, index.rewritten_bytes = 1, lambda names: 0
    steps = _Steps(root, last_step, open(log, "w"))  # noqa: SIM115
    for name in ("open", "mkdir", "rmdir", "write", "fsync", "rename", "unlink"):
        setattr(os, name, steps.counted(name, getattr(os, name)))
    write_chunk = ssd.write_chunk
    ssd.write_chunk = lambda file, *rest: write_chunk(_SteppedFile(file, steps), *rest)
    tier = open_tier(root, capacity)
    for seed in (first, first + 1):
        tier.put(chunk(seed))
        tier.flush()
    tier.close()


class _Steps:
    def __init__(self, root: str, last: int, log: Any) -> None:
        self._root, self._last, self._log = root, last, log
        self._taken = 0

    def counted(self, name: str, call: Callable) -> Callable:
        def wrapper(file: Any, *args: Any, **kwargs: Any) -> Any:
            if name == "write":
                return self._in_halves(call, file, *args)
            path = os.readlink(f"/proc/self/fd/{file}") if isinstance(file, int) else str(file)
            if path.startswith(self._root) and not (name == "open" and args[0] == os.O_RDONLY):
                self.take(name)
            return call(file, *args, **kwargs)

        return wrapper

    def take(self, name: str) -> None:
        if self._taken == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        self._taken += 1
        print(name, file=self._log, flush=True)

    def _in_halves(self, call: Callable, fd: int, content: bytes) -> int:
        self.take("write")
        half = call(fd, content[: len(content) // 2])
        self.take("write the rest")
        return half + call(fd, content[half:])


class _SteppedFile:
    def __init__(self, file: Any, steps: _Steps) -> None:
        self._file, self._steps = file, steps

    def write(self, content: Any) -> None:
        for part in (content[: len(content) // 2], content[len(content) // 2 :]):
            self._steps.take("write to the file")
            self._file.write(part)
            self._file.flush()


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                os.close(0)
                os.close(1)
                code = 0
                try:
                    globals()[request["task"]](**request["arguments"])
                except BaseException:
                    traceback.print_exc()
                    code = 1
                os._exit(code)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
