"""Reading chunk files: layers in parallel, verified, past the page cache where that is wanted."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import queue
import threading
import time
from collections.abc import Callable

import numpy as np
import torch

from kvweave.kv.chunk import ChunkKV, ChunkUnreadable, MappedPages, TierName
from kvweave.kv.codec import ALIGNMENT, ChunkHeader, bytes_of, pages_of
from kvweave.kv.format import KVFormat
from kvweave.kv.identity import ChunkRef
from kvweave.kv.layout import page_count
from kvweave.kv.tiers.buffers import BufferPool

#: A layer that has not come by then is a miss.
PATIENCE_SECONDS = 10.0

_bounce = threading.local()


def reopen_direct(fd: int) -> int | None:
    """The file open as `fd` once more, for direct I/O; None where the file system has none."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return None


def read_exactly(fd: int, out: memoryview, offset: int, *, direct: bool) -> None:
    """Fill `out` from `offset` on.

    Raises:
        OSError: the disk refused.
        EOFError: the file ends before.
    """
    if not direct:
        _read(fd, out, offset)
        return
    start = offset // ALIGNMENT * ALIGNMENT
    length = -(-(offset + len(out) - start) // ALIGNMENT) * ALIGNMENT
    aligned = start == offset and length == len(out) and _address(out) % ALIGNMENT == 0
    buffer = out if aligned else _aligned_buffer(length)
    needed = offset + len(out) - start
    done = 0
    while done < needed:  # the end of the file may cut the last block short
        try:
            count = os.preadv(fd, [buffer[done:length]], start + done)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # Some file systems open a file for direct I/O and then refuse it.
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_DIRECT)
            _read(fd, out, offset)
            return
        if count == 0:
            raise EOFError("the file is shorter than its header says")
        done += count
        if done < needed and done % ALIGNMENT:
            raise EOFError("the file is shorter than its header says")
    if not aligned:
        out[:] = buffer[offset - start : needed]


class FileReaders:
    """A few threads that read layers of chunk files, in the order in which they were asked for."""

    def __init__(self, threads: int) -> None:
        self._wanted: queue.SimpleQueue[tuple[FileLease, int] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"kvweave-ssd-read-{n}", daemon=True)
            for n in range(threads)
        ]
        self._lock = threading.Lock()
        self._closed = False
        for thread in self._threads:
            thread.start()

    def want(self, lease: FileLease, layer: int) -> None:
        """Read this layer soon."""
        with self._lock:
            if not self._closed:
                self._wanted.put((lease, layer))
                return
        lease.read_now(layer)

    def close(self) -> None:
        """Finish what was asked for and end the threads; later wishes are read at once."""
        with self._lock:
            self._closed = True
            for _ in self._threads:
                self._wanted.put(None)
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)  # one that hangs in a read is left behind

    def _run(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            lease, layer = wanted
            lease.read_now(layer)


class FileLease:
    """A lease on a chunk file: an open descriptor, so that eviction cannot pull it away.

    Layers are read into one host buffer, in the background once `prefetch` was called.

    on_unreadable: told of every read that failed, with the descriptor.
    """

    def __init__(
        self,
        fd: int,
        header: ChunkHeader,
        ref: ChunkRef,
        fmt: KVFormat,
        readers: FileReaders,
        on_unreadable: Callable[[ChunkUnreadable, int], None],
        *,
        direct: bool,
        buffers: BufferPool,
    ) -> None:
        self._fd = fd
        self._header = header
        self._ref = ref
        self._format = fmt
        self._readers = readers
        self._on_unreadable = on_unreadable
        self._direct = direct
        self._buffers = buffers
        self._buffer = buffers.lend(header.layers * header.layer_bytes)
        self._bytes = bytes_of(self._buffer)
        self._changed = threading.Condition()
        self._wanted: set[int] = set()
        self._done: dict[int, ChunkUnreadable | None] = {}
        self._reading = 0
        self._released = False
        self._began = self._ended = 0.0

    @property
    def tier(self) -> TierName:
        return "ssd"

    @property
    def ref(self) -> ChunkRef:
        return self._ref

    @property
    def recompute_seconds(self) -> float:
        return self._header.recompute_seconds

    @property
    def window(self) -> tuple[float, float] | None:
        return (self._began, self._ended) if self._ended else None

    def prefetch(self, layer: int) -> None:
        if layer not in self._wanted:
            self._wanted.add(layer)
            self._readers.want(self, layer)

    def ready(self) -> bool:
        if not self._wanted.issubset(self._done):
            return False
        for layer in self._wanted:
            self.wait(layer)
        return True

    def read_layer(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.wait(layer)
        content, split = self._layer(layer), self._header.key_bytes
        pages = page_count(keys.shape[1])
        key_pages = content[:split].view(-1, self._format.key_bytes)[:pages]
        value_bytes = self._format.page_bytes - self._format.key_bytes
        value_pages = content[split:].view(-1, value_bytes)[:pages]
        self._format.decode_layer(key_pages, value_pages, keys, values)

    def mapped(self) -> MappedPages | None:
        return None

    def whole(self) -> ChunkKV:
        header = self._header
        for layer in range(header.layers):
            self.prefetch(layer)
        for layer in range(header.layers):
            self.wait(layer)
        layers = self._buffer[: header.layers * header.layer_bytes].view(header.layers, -1)
        return ChunkKV(self._ref, pages_of(layers, self._format), header.recompute_seconds)

    def wait(self, layer: int) -> None:
        """Wait until `layer` is here and verified. Raises ChunkUnreadable like `read_layer`."""
        if self._released:
            raise RuntimeError("the lease was released")
        self.prefetch(layer)
        if layer not in self._done:
            with self._changed:
                if not self._changed.wait_for(lambda: layer in self._done, PATIENCE_SECONDS):
                    self._done[layer] = ChunkUnreadable(
                        self._header.key,
                        "slow",
                        f"layer {layer} has not come in {PATIENCE_SECONDS:.0f} s",
                    )
        error = self._done[layer]
        if error is not None:
            self._on_unreadable(error, self._fd)
            raise error

    def release(self) -> None:
        with self._changed:
            if self._released:
                return
            self._released = True
            # A read that has begun must end before its descriptor and buffer can be given away;
            # on a disk that hangs this can take for ever, so nobody waits for it.
            if not self._reading:
                self._give_up()

    def read_now(self, layer: int) -> None:
        """Read and verify `layer` in this thread; for `FileReaders`."""
        with self._changed:
            if self._released:
                return
            self._reading += 1
            if not self._began:
                self._began = time.perf_counter()
        error = None
        try:
            self._read_file(layer)
        except ChunkUnreadable as unreadable:
            error = unreadable
        except Exception as unexpected:
            error = ChunkUnreadable(self._header.key, "io_error", f"read failed: {unexpected!r}")
        with self._changed:
            self._reading -= 1
            self._done.setdefault(layer, error)
            self._ended = time.perf_counter()
            self._changed.notify_all()
            if self._released and not self._reading:
                self._give_up()

    def _give_up(self) -> None:
        os.close(self._fd)
        self._buffers.give_back(self._buffer)

    def _layer(self, layer: int) -> torch.Tensor:
        size = self._header.layer_bytes
        return self._buffer[layer * size : (layer + 1) * size]

    def _read_file(self, layer: int) -> None:
        header = self._header
        content = self._bytes[layer * header.layer_bytes : (layer + 1) * header.layer_bytes]
        offset = header.data_offset + layer * header.layer_bytes
        try:
            read_exactly(self._fd, content, offset, direct=self._direct)
        except OSError as error:
            raise ChunkUnreadable(header.key, "io_error", f"read failed: {error}") from error
        except EOFError as error:
            raise ChunkUnreadable(header.key, "corrupt", str(error)) from error
        header.verify_layer(layer, content)


def _read(fd: int, out: memoryview, offset: int) -> None:
    done = 0
    while done < len(out):
        count = os.preadv(fd, [out[done:]], offset + done)
        if count == 0:
            raise EOFError("the file is shorter than its header says")
        done += count


def _address(buffer: memoryview) -> int:
    return np.frombuffer(buffer, dtype=np.uint8).ctypes.data


def _aligned_buffer(length: int) -> memoryview:
    """At least `length` bytes at a page boundary; each thread has its own, kept for reuse."""
    buffer: memoryview | None = getattr(_bounce, "buffer", None)
    if buffer is None or len(buffer) < length:
        buffer = memoryview(mmap.mmap(-1, length))
        _bounce.buffer = buffer
    return buffer
