"""Host memory for chunk KV: page-aligned, in huge pages where the system gives them."""

from __future__ import annotations

import contextlib
import mmap

import torch


def host_memory(nbytes: int, *, pin_memory: bool = False) -> torch.Tensor:
    """Uninitialised uint8 `[nbytes]`, aligned to a page, so that direct I/O can fill it.

    Huge pages (2 MiB) make first touches and copies several times cheaper; the system takes the
    memory only as it is touched. With `pin_memory` it is page-locked for copies to a GPU.

    Raises:
        OSError: the system has not this much address space.
    """
    if pin_memory or nbytes == 0:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=pin_memory)
    block = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError, AttributeError):  # a kernel or system without them
        block.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(block, dtype=torch.uint8)
