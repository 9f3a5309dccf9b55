"""Reading chunk files: layers in parallel, verified, past the page cache where that is wanted."""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch

from kvweave.kv.chunk import ChunkKV, ChunkUnreadable, TierName
from kvweave.kv.codec import ALIGNMENT, ChunkHeader, bytes_of, pages_of
from kvweave.kv.format import KVFormat
from kvweave.kv.identity import ChunkRef
from kvweave.kv.layout import page_count

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
    buffer = _aligned_buffer(length)
    needed = offset + len(out) - start
    done = 0
    while done < needed:  # the end of the file may cut the last block short
        count = os.preadv(fd, [buffer[done:length]], start + done)
        if count == 0:
            raise EOFError("the file is shorter than its header says")
        done += count
        if done < needed and done % ALIGNMENT:
            raise EOFError("the file is shorter than its header says")
    out[:] = buffer[offset - start : needed]


class FileLease:
    """A lease on a chunk file: an open descriptor, so that eviction cannot pull it away.

    Layers are read into one host buffer, in the background once `prefetch` was called.
    """

    def __init__(
        self,
        fd: int,
        header: ChunkHeader,
        ref: ChunkRef,
        fmt: KVFormat,
        executor: ThreadPoolExecutor,
        on_unreadable: Callable[[ChunkUnreadable], None],
        *,
        direct: bool,
        pin_memory: bool,
    ) -> None:
        self._fd = fd
        self._header = header
        self._ref = ref
        self._format = fmt
        self._executor = executor
        self._on_unreadable = on_unreadable
        self._direct = direct
        self._layers = torch.empty(
            (header.layers, header.layer_bytes), dtype=torch.uint8, pin_memory=pin_memory
        )
        self._reads: dict[int, Future[None]] = {}
        self._released = False
        self._began = self._ended = 0.0

    @property
    def tier(self) -> TierName:
        return "ssd"

    @property
    def ref(self) -> ChunkRef:
        return self._ref

    @property
    def window(self) -> tuple[float, float] | None:
        return (self._began, self._ended) if self._ended else None

    def prefetch(self, layer: int) -> None:
        if layer not in self._reads and not self._released:
            self._reads[layer] = self._executor.submit(self._read_file, layer)

    def read_layer(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        content = self._arrived(layer)
        split = self._header.key_bytes
        pages = page_count(keys.shape[1])
        key_pages = content[:split].view(-1, self._format.key_bytes)[:pages]
        value_bytes = self._format.page_bytes - self._format.key_bytes
        value_pages = content[split:].view(-1, value_bytes)[:pages]
        self._format.decode_layer(key_pages, value_pages, keys, values)

    def whole(self) -> ChunkKV:
        for layer in range(self._header.layers):
            self.prefetch(layer)
        for layer in range(self._header.layers):
            self._arrived(layer)
        pages = pages_of(self._layers, self._format)
        return ChunkKV(self._ref, pages, self._header.recompute_seconds)

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

    def _arrived(self, layer: int) -> torch.Tensor:
        self.prefetch(layer)
        try:
            self._reads[layer].result()
        except ChunkUnreadable as error:
            self._on_unreadable(error)
            raise
        return self._layers[layer]

    def _read_file(self, layer: int) -> None:
        header = self._header
        if not self._began:
            self._began = time.perf_counter()
        content = bytes_of(self._layers[layer])
        offset = header.data_offset + layer * header.layer_bytes
        try:
            read_exactly(self._fd, content, offset, direct=self._direct)
        except OSError as error:
            raise ChunkUnreadable(header.key, "io_error", f"read failed: {error}") from error
        except EOFError as error:
            raise ChunkUnreadable(header.key, "corrupt", str(error)) from error
        header.verify_layer(layer, content)
        self._ended = time.perf_counter()


def _read(fd: int, out: memoryview, offset: int) -> None:
    done = 0
    while done < len(out):
        count = os.preadv(fd, [out[done:]], offset + done)
        if count == 0:
            raise EOFError("the file is shorter than its header says")
        done += count


def _aligned_buffer(length: int) -> memoryview:
    """At least `length` bytes at a page boundary; each thread has its own, kept for reuse."""
    buffer: memoryview | None = getattr(_bounce, "buffer", None)
    if buffer is None or len(buffer) < length:
        buffer = memoryview(mmap.mmap(-1, length))
        _bounce.buffer = buffer
    return buffer
