"""Copying hits up to faster tiers, behind the requests."""

from __future__ import annotations

import logging
import queue
import threading
from contextlib import nullcontext

import torch

from kvweave.kv import ChunkCache, ChunkLease

log = logging.getLogger("vllm.kvweave")


class Refiller:
    """One thread that refills the upper tiers from leases, and releases them.

    On a GPU it copies on a stream of its own.
    """

    def __init__(self, cache: ChunkCache, device: torch.device) -> None:
        self._cache = cache
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._leases: queue.SimpleQueue[list[ChunkLease] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kvweave-refill", daemon=True)
        self._thread.start()

    def add(self, leases: list[ChunkLease]) -> None:
        """Take these leases over."""
        self._leases.put(leases)

    def close(self) -> None:
        self._leases.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (leases := self._leases.get()) is not None:
            try:
                with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
                    for lease in leases:
                        self._cache.refill(lease)
            except Exception as error:  # such as a device that is out of memory
                log.warning("chunk KV could not be copied to a faster tier: %s", error)
            finally:
                for lease in leases:
                    lease.release()
