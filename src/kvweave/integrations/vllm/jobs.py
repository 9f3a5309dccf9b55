"""Missing chunk KV on vLLM: computed between the requests' own work, one chunk a step."""

from __future__ import annotations

from collections.abc import Iterable

from kvweave.integrations.vllm.messages import Store

#: Chunks that may wait; more are not remembered, they will be missed and queued again.
MAX_WAITING_CHUNKS = 1024
#: Steps with prefills that a chunk lets pass before it takes a turn beside one.
PATIENCE_STEPS = 16


class StoreQueue:
    """Chunks to compute, each once however often it is asked for while it waits.

    It lies with the scheduler, so that all workers compute the same chunks in the same order: with
    tensor parallelism each has a part of the heads, and none can compute alone.
    """

    def __init__(self) -> None:
        self._waiting: dict[Store, None] = {}
        self._passed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, stores: Iterable[Store]) -> None:
        for store in stores:
            if len(self._waiting) < MAX_WAITING_CHUNKS:
                self._waiting.setdefault(store)

    def next(self, *, quiet: bool) -> Store | None:
        """The chunk to compute in this step, if there is one and the step can bear it.

        quiet: nothing but decoding happens in this step. Others are left alone, but not for ever.
        """
        if not self._waiting:
            return None
        if not quiet and self._passed < PATIENCE_STEPS:
            self._passed += 1
            return None
        self._passed = 0
        store = next(iter(self._waiting))
        del self._waiting[store]
        return store
