"""Disks and tiers that fail, under the real code."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kvweave.kv import ChunkUnreadable

READ_ERRORS = (errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE)
WRITE_ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EROFS)


class FaultyDisk:
    """Calls to the operating system about files under `root` fail now and then, while `active`.

    They raise errors, take long, give or take fewer bytes than asked for, and flip single bits of
    what is read or written. `counts` says how often each has happened.

    share: of the calls that go wrong.
    """

    def __init__(self, root: Path, seed: int, share: float) -> None:
        self.root = str(root)
        self.active = False
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._share = share
        self._thread = threading.local()

    def install(self, monkeypatch: Any) -> None:
        for name, wrap, codes in (
            ("open", self._failing, READ_ERRORS + WRITE_ERRORS),
            ("stat", self._failing, READ_ERRORS),
            ("scandir", self._failing, READ_ERRORS),
            ("utime", self._failing, WRITE_ERRORS),
            ("mkdir", self._failing, WRITE_ERRORS),
            ("rename", self._failing, WRITE_ERRORS),
            ("unlink", self._failing, WRITE_ERRORS),
            ("fsync", self._failing, WRITE_ERRORS),
            ("pread", self._pread, READ_ERRORS),
            ("preadv", self._preadv, READ_ERRORS),
            ("write", self._write, WRITE_ERRORS),
        ):
            monkeypatch.setattr(os, name, wrap(name, getattr(os, name), codes))
        from kvweave.kv.tiers import ssd

        write_chunk = ssd.write_chunk
        monkeypatch.setattr(
            ssd, "write_chunk", lambda file, *args: write_chunk(_FaultyFile(file, self), *args)
        )

    @contextlib.contextmanager
    def spared(self) -> Iterator[None]:
        """Nothing fails in this thread meanwhile."""
        self._thread.spared = True
        try:
            yield
        finally:
            self._thread.spared = False

    def fault(self, *kinds: str) -> str | None:
        """What goes wrong this time, if anything."""
        if self._random.random() >= self._share:
            return None
        kind = self._random.choice(kinds)
        self.counts[kind] += 1
        if kind == "delay":
            time.sleep(self._random.random() * 0.003)
        return kind

    def error(self, codes: tuple[int, ...]) -> OSError:
        code = self._random.choice(codes)
        self.counts[errno.errorcode[code]] += 1
        return OSError(code, os.strerror(code))

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)

    def flip(self, content: Any) -> None:
        """Change one bit of a writable buffer."""
        content[self.below(len(content))] ^= 1 << self.below(8)

    def _concerns(self, file: object) -> bool:
        if not self.active or getattr(self._thread, "spared", False):
            return False
        if isinstance(file, int):
            try:
                file = os.readlink(f"/proc/self/fd/{file}")
            except OSError:
                return False
        return str(file).startswith(self.root)

    def _failing(self, name: str, call: Callable, codes: tuple[int, ...]) -> Callable:
        def wrapper(file, *args, **kwargs):
            if self._concerns(file) and self.fault("error", "delay") == "error":
                raise self.error(codes)
            return call(file, *args, **kwargs)

        return wrapper

    def _pread(self, name: str, call: Callable, codes: tuple[int, ...]) -> Callable:
        def wrapper(fd, length, offset):
            if not self._concerns(fd):
                return call(fd, length, offset)
            fault = self.fault("error", "delay", "short", "flip")
            if fault == "error":
                raise self.error(codes)
            if fault == "short" and length > 1:
                length = 1 + self.below(length - 1)
            content = call(fd, length, offset)
            if fault == "flip" and content:
                content = bytearray(content)
                self.flip(content)
            return bytes(content)

        return wrapper

    def _preadv(self, name: str, call: Callable, codes: tuple[int, ...]) -> Callable:
        def wrapper(fd, buffers, offset):
            if not self._concerns(fd):
                return call(fd, buffers, offset)
            fault = self.fault("error", "delay", "short", "flip")
            if fault == "error":
                raise self.error(codes)
            (buffer,) = buffers
            if fault == "short" and len(buffer) > 4096:  # direct reads end at blocks
                buffer = buffer[: 4096 * (1 + self.below((len(buffer) - 1) // 4096))]
            count = call(fd, [buffer], offset)
            if fault == "flip" and count:
                self.flip(buffer[:count])
            return count

        return wrapper

    def _write(self, name: str, call: Callable, codes: tuple[int, ...]) -> Callable:
        def wrapper(fd, content):
            if self._concerns(fd):
                fault = self.fault("error", "delay", "short")
                if fault == "error":
                    call(fd, content[: self.below(len(content))])
                    raise self.error(codes)
                if fault == "short":
                    content = content[: 1 + self.below(len(content))]
            return call(fd, content)

        return wrapper


class _FaultyFile:
    """A file whose writes fail half-way, or store something else."""

    def __init__(self, file: Any, disk: FaultyDisk) -> None:
        self._file = file
        self._disk = disk

    def write(self, content: Any) -> int:
        disk = self._disk
        if disk.active:
            fault = disk.fault("error", "delay", "flip")
            if fault == "error":
                self._file.write(bytes(content)[: disk.below(len(content))])
                raise disk.error(WRITE_ERRORS)
            if fault == "flip":
                content = bytearray(content)
                disk.flip(content)
        return self._file.write(content)


class FaultyTier:
    """A tier that loses chunks, refuses them, and whose leases break; while its disk is active."""

    def __init__(self, tier: Any, disk: FaultyDisk) -> None:
        self._tier = tier
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tier, name)

    def lease(self, ref: Any) -> Any:
        if self._disk.active and self._disk.fault("lost", "delay") == "lost":
            self._tier.discard(ref.key)
        lease = self._tier.lease(ref)
        return lease and _FaultyLease(lease, self._disk)

    def put(self, chunk: Any) -> Any:
        if self._disk.active and self._disk.fault("refused", "delay") == "refused":
            return []
        return self._tier.put(chunk)


class _FaultyLease:
    def __init__(self, lease: Any, disk: FaultyDisk) -> None:
        self._lease = lease
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    def read_layer(self, *args: Any) -> None:
        self._maybe_break()
        self._lease.read_layer(*args)

    def whole(self) -> Any:
        self._maybe_break()
        return self._lease.whole()

    def _maybe_break(self) -> None:
        if self._disk.active and self._disk.fault("broken", "delay") == "broken":
            raise ChunkUnreadable(self._lease.ref.key, "io_error", "made to fail")


def disk_usage(root: Path) -> int:
    """Bytes of disk that a cache folder takes, folders included, as `du` counts them.

    Measured while no process changes the folder: `du` could count a file twice that is renamed.
    """
    try:
        lock = os.open(root / "lock", os.O_RDWR)
    except FileNotFoundError:
        return 0
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        total = os.lstat(root).st_blocks
        for folder, folders, files in os.walk(root):
            for name in folders + files:
                with contextlib.suppress(FileNotFoundError):
                    total += os.lstat(os.path.join(folder, name)).st_blocks
        return total * 512
    except FileNotFoundError:  # removed meanwhile
        return 0
    finally:
        os.close(lock)
