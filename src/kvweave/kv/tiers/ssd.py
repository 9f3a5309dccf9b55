"""The `ssd` tier: chunk KV as content-addressed files under a hard limit in real bytes."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from pathlib import Path

from kvweave.kv.chunk import ChunkKV, ChunkUnreadable, TierName
from kvweave.kv.codec import ALIGNMENT, check_expected, read_header, write_chunk
from kvweave.kv.eviction import EvictionPolicy
from kvweave.kv.format import KVFormat
from kvweave.kv.identity import ChunkRef
from kvweave.kv.tiers.base import TierStats
from kvweave.kv.tiers.buffers import BufferPool
from kvweave.kv.tiers.index import DiskIndex
from kvweave.kv.tiers.reading import FileLease, FileReaders, reopen_direct

log = logging.getLogger(__name__)

_RETRY_SECONDS = 30.0


class SSDTier:
    """Chunk files in `root`, never more than `capacity_bytes` of disk blocks.

    Files are named by their key, written to a temporary name, forced to disk and renamed, so a
    reader sees a whole file or none; they are found again after a restart, and by other servers on
    the same folder. Writing happens behind the request in one thread, with at most
    `max_pending_bytes` waiting. A disk that refuses (full, read-only, gone) costs one log line and
    a pause, never a request. A file that fails verification is moved to `quarantine/` and counted.

    direct_io: read past the page cache where the file system can.

    Raises:
        OSError: `root` cannot be created or written to.
    """

    def __init__(
        self,
        root: Path,
        capacity_bytes: int,
        policy: EvictionPolicy,
        fmt: KVFormat,
        *,
        direct_io: bool = False,
        pin_memory: bool = False,
        max_pending_bytes: int = 1 << 30,
        io_threads: int = 4,
    ) -> None:
        self._format = fmt
        self._direct_io = direct_io
        self._buffers = BufferPool(max_pending_bytes, pin_memory=pin_memory)
        self._max_pending = max_pending_bytes
        self._index = DiskIndex(root, capacity_bytes, policy)
        self._lock = threading.Lock()
        self._pending: dict[str, ChunkKV] = {}
        self._pending_bytes = 0
        self._retry_at = 0.0
        self._closed = False
        self.unreadable = 0
        self.dropped_writes = 0
        self._readers = FileReaders(io_threads)
        self._queue: queue.Queue[ChunkKV | None] = queue.Queue()
        self._writer = threading.Thread(
            target=self._write_loop, name="kvweave-ssd-write", daemon=True
        )
        self._writer.start()

    @property
    def name(self) -> TierName:
        return "ssd"

    def lease(self, ref: ChunkRef) -> FileLease | None:
        path = self._index.path(ref.key)
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                if ref.key in self._index and ref.key not in self._pending:
                    self._index.remove(ref.key)
            return None
        except OSError as error:
            self._set_aside(ChunkUnreadable(ref.key, "io_error", f"cannot open {path}: {error}"))
            return None
        try:
            header = read_header(fd, ref.key)
            check_expected(header, ref, self._format)
        except ChunkUnreadable as error:
            os.close(fd)
            self._set_aside(error)
            return None
        except BaseException:
            os.close(fd)
            raise
        self._index.touch(ref.key)
        direct = reopen_direct(fd) if self._direct_io else None
        if direct is not None:
            os.close(fd)
            fd = direct
        return FileLease(
            fd,
            header,
            ref,
            self._format,
            self._readers,
            self._set_aside,
            direct=direct is not None,
            buffers=self._buffers,
        )

    def contains(self, key: str) -> bool:
        with self._lock:
            if key in self._pending:
                return True
        return key in self._index

    def put(self, chunk: ChunkKV) -> list[ChunkKV]:
        key = chunk.ref.key
        if key in self._index:
            self._index.touch(key)
            return []
        with self._lock:
            if key not in self._pending:
                if self._pending_bytes + chunk.nbytes > self._max_pending:
                    self.dropped_writes += 1
                else:
                    self._pending[key] = chunk
                    self._pending_bytes += chunk.nbytes
                    self._queue.put(chunk)
        return []

    def settle(self, key: str) -> None:
        self.flush()
        with contextlib.suppress(OSError):
            fd = os.open(self._index.path(key), os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)

    def discard(self, key: str) -> None:
        with contextlib.suppress(OSError):
            self._index.remove(key)

    def clear(self) -> int:
        return sum(self._index.remove(key) for key in self._index.chunk_keys())

    def stats(self) -> TierStats:
        chunks, used = self._index.used()
        return TierStats(chunks, used, self._index.capacity)

    def flush(self) -> None:
        """Wait until everything put so far is on the disk or was given up."""
        self._queue.join()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        self._writer.join()
        self._readers.close()
        self._index.close()

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
                        del self._pending[chunk.ref.key]
                        self._pending_bytes -= chunk.nbytes
                self._queue.task_done()

    def _write(self, chunk: ChunkKV) -> None:
        if time.monotonic() < self._retry_at:
            self.dropped_writes += 1
            return
        key = chunk.ref.key
        temporary = self._index.temporary_path(key)
        try:
            if self._retry_at:  # the last attempt failed
                self._index.recover()
                self._retry_at = 0.0
            if not self._index.reserve(key, _file_bytes(chunk), chunk.recompute_seconds):
                self.dropped_writes += 1
                return
            _write_file(temporary, chunk, self._format)
            self._index.settle(key, temporary)
        except OSError as error:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            self.dropped_writes += 1
            log.warning(
                "ssd tier: cannot write to %s (%s); serving without new files, next try in %.0f s",
                self._index.root,
                error,
                _RETRY_SECONDS,
            )
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._index.remove(key)

    def _set_aside(self, error: ChunkUnreadable) -> None:
        log.warning("ssd tier: %s (%s): set aside, will be computed again", error, error.reason)
        with self._lock:
            self.unreadable += 1
        with contextlib.suppress(OSError):
            self._index.set_aside(error.key)


def _write_file(path: Path, chunk: ChunkKV, fmt: KVFormat) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        write_chunk(file, chunk, fmt)
        file.flush()
        os.fsync(fd)


def _file_bytes(chunk: ChunkKV) -> int:
    """Disk blocks that the chunk's file will take, at most."""
    layers = chunk.pages.shape[1]
    header = 2048 + 80 * layers + len(chunk.ref.token_ids) * 4
    blocks = -(-(chunk.nbytes + header) // ALIGNMENT) + 3
    return blocks * ALIGNMENT
