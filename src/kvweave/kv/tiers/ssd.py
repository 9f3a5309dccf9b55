"""The `ssd` tier: chunk KV as content-addressed files under a hard limit in real bytes."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import queue
import threading
import time
from pathlib import Path
from typing import BinaryIO

import torch

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
#: How often to look for what other processes on the folder have changed.
_FOLLOW_SECONDS = 1.0
#: Files deleted at once; others that use the folder wait for so long.
_BATCH = 256


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
        self._no_writes_before = self._no_reads_before = self._silent_before = 0.0
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
        if time.monotonic() < self._no_reads_before:
            return None
        fd = self._open(ref.key)
        if fd is None:
            return None
        try:
            header = read_header(fd, ref.key)
            check_expected(header, ref, self._format)
            direct = reopen_direct(fd) if self._direct_io else None
            if direct is not None:
                os.close(fd)
                fd = direct
            lease = FileLease(
                fd,
                header,
                ref,
                self._format,
                self._readers,
                self._note_unreadable,
                direct=direct is not None,
                buffers=self._buffers,
            )
        except ChunkUnreadable as error:
            self._note_unreadable(error, fd)
            os.close(fd)
            return None
        except (MemoryError, RuntimeError) as error:  # torch has no other word for it
            os.close(fd)
            log.warning("ssd tier: no memory to read chunk %s into: %s", ref.key[:12], error)
            return None
        self._index.touch(ref.key)
        return lease

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
        gone = 0
        with contextlib.suppress(OSError):
            self._index.follow()
            keys = self._index.chunk_keys()
            for start in range(0, len(keys), _BATCH):
                gone += len(self._index.remove_many(keys[start : start + _BATCH]))
        return gone

    def memory(self) -> torch.Tensor | None:
        return None

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
            try:
                chunk = self._queue.get(timeout=_FOLLOW_SECONDS)
            except queue.Empty:
                with contextlib.suppress(OSError):
                    self._index.follow()
                continue
            if chunk is None:
                return
            try:
                self._write(chunk)
            except Exception:  # such as a device that is out of memory
                self.dropped_writes += 1
                log.exception("ssd tier: chunk %s is not stored", chunk.ref.key[:12])
            finally:
                with self._lock:
                    del self._pending[chunk.ref.key]
                    self._pending_bytes -= chunk.nbytes
                self._queue.task_done()

    def _write(self, chunk: ChunkKV) -> None:
        if time.monotonic() < self._no_writes_before:
            self.dropped_writes += 1
            return
        draft = None
        try:
            if self._no_writes_before:  # the last attempt failed
                self._index.recover()
                self._no_writes_before = 0.0
            key = chunk.ref.key
            draft = self._index.reserve(key, _file_bytes(chunk), chunk.recompute_seconds)
            if draft is None:
                self.dropped_writes += key not in self._index
                return
            _write_file(draft.file, chunk, self._format)
            self._index.settle(draft)
            draft = None
        except OSError as error:
            self._no_writes_before = time.monotonic() + _RETRY_SECONDS
            self.dropped_writes += 1
            log.warning(
                "ssd tier: cannot write to %s (%s); serving without new files, next try in %.0f s",
                self._index.root,
                error,
                _RETRY_SECONDS,
            )
        finally:
            if draft is not None:
                self._index.cancel(draft)

    def _open(self, key: str) -> int | None:
        path = self._index.path(key)
        try:
            return os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            if key in self._index:
                with contextlib.suppress(OSError):
                    self._index.forget_missing(key)
        except OSError as error:
            unreadable = ChunkUnreadable(key, "io_error", f"cannot open {path}: {error}")
            unreadable.__cause__ = error
            self._note_unreadable(unreadable, None)
        return None

    def _note_unreadable(self, error: ChunkUnreadable, fd: int | None) -> None:
        """Count it, and move the file out of the way if it is the file's own fault."""
        with self._lock:
            self.unreadable += 1
            now = time.monotonic()
            silent = error.reason != "corrupt" and now < self._silent_before
            if not silent and error.reason != "corrupt":
                self._silent_before = now + _RETRY_SECONDS
            if error.reason == "slow":
                self._no_reads_before = now + _RETRY_SECONDS
        if error.reason == "slow":
            what = f"nothing is read for {_RETRY_SECONDS:.0f} s"
        elif _is_lasting(error):
            what = "set aside"
        else:
            what = "left where it is"
        if not silent:
            log.warning("ssd tier: %s (%s): %s, will be computed again", error, error.reason, what)
        if what == "set aside":
            with contextlib.suppress(OSError):
                self._index.set_aside(error.key, None if fd is None else os.fstat(fd))


def _is_lasting(error: ChunkUnreadable) -> bool:
    """Whether the file is to blame, and not the process or the disk at this moment."""
    cause = error.__cause__
    if error.reason != "io_error" or not isinstance(cause, OSError):
        return error.reason != "slow"
    return cause.errno == errno.EIO


def _write_file(file: BinaryIO, chunk: ChunkKV, fmt: KVFormat) -> None:
    write_chunk(file, chunk, fmt)
    file.flush()
    os.fsync(file.fileno())


def _file_bytes(chunk: ChunkKV) -> int:
    """Disk blocks that the chunk's file will take, at most."""
    layers = chunk.pages.shape[1]
    header = 2048 + 80 * layers + len(chunk.ref.token_ids) * 4
    blocks = -(-(chunk.nbytes + header) // ALIGNMENT) + 3
    return blocks * ALIGNMENT
