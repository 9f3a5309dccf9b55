"""Host buffers that are used again: fresh memory costs a page fault every 4 KiB."""

from __future__ import annotations

import threading

import torch

from kvweave.kv.tiers.host import host_memory

_STEP = 1 << 20


class BufferPool:
    """Lends uint8 host buffers and keeps up to `keep_bytes` of returned ones. Thread-safe.

    With `pin_memory` they are page-locked, which makes them dearer still to come by.
    """

    def __init__(self, keep_bytes: int, *, pin_memory: bool = False) -> None:
        self._keep = keep_bytes
        self._pin_memory = pin_memory
        self._lock = threading.Lock()
        self._free: list[torch.Tensor] = []  # oldest first
        self._kept = 0

    def lend(self, nbytes: int) -> torch.Tensor:
        """At least `nbytes` of memory with any content; give it back with `give_back`."""
        with self._lock:
            for i in range(len(self._free) - 1, -1, -1):
                if nbytes <= self._free[i].numel() <= max(2 * nbytes, _STEP):
                    buffer = self._free.pop(i)
                    self._kept -= buffer.numel()
                    return buffer
        size = -(-nbytes // _STEP) * _STEP
        return host_memory(size, pin_memory=self._pin_memory)

    def give_back(self, buffer: torch.Tensor) -> None:
        """Nobody may use `buffer` any more."""
        with self._lock:
            self._free.append(buffer)
            self._kept += buffer.numel()
            while self._kept > self._keep:
                self._kept -= self._free.pop(0).numel()
