"""The `ssd` tier: chunk KV as content-addressed files under a hard limit in real bytes."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors import SafetensorError

from kvweave.kv.chunk import ChunkKV, ChunkUnreadable, TierName
from kvweave.kv.codec import ChunkFile, open_chunk, write_chunk
from kvweave.kv.eviction import EvictionPolicy
from kvweave.kv.layout import KVLayout
from kvweave.kv.tiers.base import TierStats

log = logging.getLogger(__name__)

_NAME = re.compile(r"[0-9a-f]{64}\.safetensors")
_TEMPORARY = re.compile(r"[0-9a-f]{64}\.(\d+)\.tmp")
_BLOCK_BYTES = 4096
_HEADER_BYTES = 64 << 10  # room reserved for header and rounding before the real size is known
_RETRY_SECONDS = 30.0
_QUARANTINE_FILES = 16


class SSDLease:
    """A lease on a chunk file: an open descriptor, so that eviction cannot pull it away.

    Layers are read into one host tensor, in the background once `prefetch` was called.
    """

    def __init__(
        self,
        fd: int,
        file: ChunkFile,
        token_ids: tuple[int, ...],
        layout: KVLayout,
        executor: ThreadPoolExecutor,
        on_unreadable: Callable[[ChunkUnreadable], None],
        *,
        pin_memory: bool,
    ) -> None:
        self._fd = fd
        self._file = file
        self._token_ids = token_ids
        self._layers = layout.layers
        self._executor = executor
        self._on_unreadable = on_unreadable
        self._kv = torch.empty(
            layout.shape(len(token_ids)), dtype=layout.dtype, pin_memory=pin_memory
        )
        self._reads: dict[int, Future[None]] = {}
        self._released = False

    @property
    def tier(self) -> TierName:
        return "ssd"

    @property
    def key(self) -> str:
        return self._file.key

    @property
    def tokens(self) -> int:
        return len(self._token_ids)

    def prefetch(self, layer: int) -> None:
        if layer not in self._reads and not self._released:
            self._reads[layer] = self._executor.submit(self._read, layer)

    def layer(self, layer: int) -> torch.Tensor:
        self.prefetch(layer)
        try:
            self._reads[layer].result()
        except ChunkUnreadable as error:
            self._on_unreadable(error)
            raise
        return self._kv[layer]

    def whole(self) -> ChunkKV:
        for layer in range(self._layers):
            self.prefetch(layer)
        for layer in range(self._layers):
            self.layer(layer)
        return ChunkKV(self._file.key, self._file.content, self._token_ids, self._kv)

    def release(self) -> None:
        if self._released:
            return
        self._released = True
        for read in self._reads.values():
            read.cancel()
        # A read that has begun must end before its descriptor number can be given away.
        for read in self._reads.values():
            if not read.cancelled():
                read.exception()
        os.close(self._fd)

    def _read(self, layer: int) -> None:
        self._file.read_layer(self._fd, layer, self._kv[layer])


class SSDTier:
    """Chunk files in `root`, never more than `capacity_bytes` of disk blocks.

    Files are named by their key, written to a temporary name, forced to disk and renamed, so a
    reader sees a whole file or none; they are found again after a restart. Writing happens behind
    the request in one thread, with at most `max_pending_bytes` waiting. A disk that refuses
    (full, read-only, gone) costs one log line and a pause, never a request. A file that fails
    verification is moved to `quarantine/` and counted.

    Raises:
        OSError: `root` cannot be created or written to.
    """

    def __init__(
        self,
        root: Path,
        capacity_bytes: int,
        policy: EvictionPolicy,
        layout: KVLayout,
        *,
        pin_memory: bool = False,
        max_pending_bytes: int = 1 << 30,
        io_threads: int = 4,
    ) -> None:
        self._root = root
        self._capacity = capacity_bytes
        self._policy = policy
        self._layout = layout
        self._pin_memory = pin_memory
        self._max_pending = max_pending_bytes
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._used = 0
        self._pending: dict[str, ChunkKV] = {}
        self._pending_bytes = 0
        self._retry_at = 0.0
        self.unreadable = 0
        self.dropped_writes = 0
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("tmp", "quarantine"):
            (root / name).mkdir(mode=0o700, exist_ok=True)
        self._check_writable()
        self._remove_leftovers()
        self._rebuild_index()
        self._executor = ThreadPoolExecutor(io_threads, thread_name_prefix="kvweave-ssd-read")
        self._queue: queue.Queue[ChunkKV | None] = queue.Queue()
        self._writer = threading.Thread(
            target=self._write_loop, name="kvweave-ssd-write", daemon=True
        )
        self._writer.start()

    @property
    def name(self) -> TierName:
        return "ssd"

    def lease(self, key: str, token_ids: Sequence[int]) -> SSDLease | None:
        path = self._path(key)
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            self._forget(key)
            return None
        except OSError as error:
            self._set_aside(ChunkUnreadable(key, "io_error", f"cannot open {path}: {error}"))
            return None
        try:
            file = open_chunk(fd, key, token_ids, self._layout)
            with contextlib.suppress(OSError):
                os.utime(path)  # recency survives a restart
        except ChunkUnreadable as error:
            os.close(fd)
            self._set_aside(error)
            return None
        except BaseException:
            os.close(fd)
            raise
        with self._lock:
            if key in self._sizes:
                self._policy.touch(key)
        return SSDLease(
            fd,
            file,
            tuple(token_ids),
            self._layout,
            self._executor,
            self._set_aside,
            pin_memory=self._pin_memory,
        )

    def contains(self, key: str) -> bool:
        with self._lock:
            return key in self._sizes or key in self._pending

    def put(self, chunk: ChunkKV) -> list[ChunkKV]:
        with self._lock:
            if chunk.key in self._sizes:
                self._policy.touch(chunk.key)
            elif chunk.key not in self._pending:
                if self._pending_bytes + chunk.nbytes > self._max_pending:
                    self.dropped_writes += 1
                else:
                    self._pending[chunk.key] = chunk
                    self._pending_bytes += chunk.nbytes
                    self._queue.put(chunk)
        return []

    def discard(self, key: str) -> None:
        with self._lock:
            if key in self._sizes:
                self._delete(key)

    def clear(self) -> int:
        with self._lock:
            keys = list(self._sizes)
            for key in keys:
                self._delete(key)
            return len(keys)

    def stats(self) -> TierStats:
        with self._lock:
            return TierStats(len(self._sizes), self._used, self._capacity)

    def flush(self) -> None:
        """Wait until everything put so far is on the disk or was given up."""
        self._queue.join()

    def close(self) -> None:
        self._queue.put(None)
        self._writer.join()
        self._executor.shutdown(cancel_futures=True)

    # -- files ---------------------------------------------------------------------------------

    def _path(self, key: str) -> Path:
        return self._root / key[:2] / f"{key}.safetensors"

    def _check_writable(self) -> None:
        probe = self._root / "tmp" / f"probe.{os.getpid()}"
        probe.write_bytes(b"kvweave")
        probe.unlink()

    def _remove_leftovers(self) -> None:
        for entry in os.scandir(self._root / "tmp"):
            match = _TEMPORARY.fullmatch(entry.name)
            if match and not _is_alive(int(match[1])):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)

    def _rebuild_index(self) -> None:
        found: list[tuple[float, str, int]] = []
        for folder in os.scandir(self._root):
            if len(folder.name) != 2 or not folder.is_dir(follow_symlinks=False):
                continue
            for entry in os.scandir(folder.path):
                if _NAME.fullmatch(entry.name):
                    with contextlib.suppress(OSError):
                        stat = entry.stat(follow_symlinks=False)
                        found.append((stat.st_mtime, entry.name[:64], stat.st_blocks * 512))
        for _, key, size in sorted(found):
            self._sizes[key] = size
            self._used += size
            self._policy.add(key)
        self._used += self._quarantined_bytes()
        with self._lock:
            self._make_room(0)

    def _quarantined_bytes(self) -> int:
        return sum(e.stat().st_blocks * 512 for e in os.scandir(self._root / "quarantine"))

    # -- writing -------------------------------------------------------------------------------

    def _write_loop(self) -> None:
        while True:
            chunk = self._queue.get()
            try:
                if chunk is None:
                    return
                self._write(chunk)
            finally:
                if chunk is not None:
                    with self._lock:
                        del self._pending[chunk.key]
                        self._pending_bytes -= chunk.nbytes
                self._queue.task_done()

    def _write(self, chunk: ChunkKV) -> None:
        if time.monotonic() < self._retry_at:
            self.dropped_writes += 1
            return
        temporary = self._root / "tmp" / f"{chunk.key}.{os.getpid()}.tmp"
        reserved = _round_up(chunk.nbytes + _HEADER_BYTES)
        with self._lock:
            if not self._make_room(reserved):
                self.dropped_writes += 1
                return
            self._used += reserved
        size = 0
        try:
            write_chunk(temporary, chunk)
            path = self._path(chunk.key)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            size = temporary.stat().st_blocks * 512
            temporary.rename(path)
            _sync_directory(path.parent)
        except (OSError, SafetensorError) as error:
            size = 0
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            self.dropped_writes += 1
            log.warning(
                "ssd tier: cannot write to %s (%s); serving without new files, next try in %.0f s",
                self._root,
                error,
                _RETRY_SECONDS,
            )
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        with self._lock:
            self._used += size - reserved
            if size:
                self._sizes[chunk.key] = size
                self._policy.add(chunk.key)
                self._make_room(0)

    def _make_room(self, nbytes: int) -> bool:
        """Evict until `nbytes` more fit under the limit; whether they do. Needs the lock."""
        if nbytes > self._capacity:
            return False
        missing = self._used + nbytes - self._capacity
        if missing > 0:
            victims = []
            for key in self._policy.victims():
                victims.append(key)
                missing -= self._sizes[key]
                if missing <= 0:
                    break
            for key in victims:
                self._delete(key)
        return self._used + nbytes <= self._capacity

    def _delete(self, key: str) -> None:
        with contextlib.suppress(OSError):
            self._path(key).unlink(missing_ok=True)
        self._used -= self._sizes.pop(key)
        self._policy.remove(key)

    def _forget(self, key: str) -> None:
        with self._lock:
            if key in self._sizes:
                self._used -= self._sizes.pop(key)
                self._policy.remove(key)

    def _set_aside(self, error: ChunkUnreadable) -> None:
        """Take an unreadable file out of service; keep the last few for a look."""
        log.warning("ssd tier: %s (%s): set aside, will be computed again", error, error.reason)
        quarantine = self._root / "quarantine"
        with self._lock:
            self.unreadable += 1
            if error.key in self._sizes:
                self._used -= self._sizes.pop(error.key)
                self._policy.remove(error.key)
            with contextlib.suppress(OSError):
                before = self._quarantined_bytes()
                self._path(error.key).rename(quarantine / error.key)
                kept = sorted(os.scandir(quarantine), key=lambda e: e.stat().st_mtime)
                for entry in kept[:-_QUARANTINE_FILES]:
                    os.unlink(entry.path)
                self._used += self._quarantined_bytes() - before
                self._make_room(0)


def _round_up(nbytes: int) -> int:
    return -(-nbytes // _BLOCK_BYTES) * _BLOCK_BYTES


def _is_alive(pid: int) -> bool:
    if pid == os.getpid():
        return False  # a leftover of an earlier process that had this number
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
