"""Work behind the requests: computing missing chunk KV, and refilling the upper tiers."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager

from kvweave.kv import ChunkCache, ChunkLease
from kvweave.models import BlendableModel
from kvweave.reuse import ChunkJob, compute_chunk

log = logging.getLogger(__name__)

#: Chunks of misses that may wait; more are not remembered, they will be missed and queued again.
MAX_WAITING_CHUNKS = 1024
#: How long a chunk waits for a moment without requests before it takes a turn among them.
PATIENCE_SECONDS = 2.0


class BackgroundWork:
    """One thread that computes chunk KV in the gaps between requests.

    Each chunk is computed once, however often it is asked for while it waits, and never beside a
    running forward pass: `exclusive` holds the engine between two of its steps. The thread waits
    for an idle engine, but not forever, so chunks also get done under constant load, one a turn.
    """

    def __init__(
        self,
        model: BlendableModel,
        cache: ChunkCache,
        exclusive: Callable[[], AbstractContextManager[None]],
        is_idle: Callable[[], bool],
    ) -> None:
        self._model = model
        self._cache = cache
        self._exclusive = exclusive
        self._is_idle = is_idle
        self._wake = threading.Condition()
        self._refills: deque[list[ChunkLease]] = deque()
        self._jobs: dict[str, tuple[ChunkJob, Future[bool]]] = {}
        self._stopping = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="kvweave-background", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish the chunk in hand, drop the rest, release every lease."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        for leases in self._refills:
            _release(leases)
        for _, future in self._jobs.values():
            future.cancel()

    def pending(self) -> int:
        """Chunks still to be computed, the one in hand included."""
        with self._wake:
            return len(self._jobs)

    def add_chunks(self, jobs: Iterable[ChunkJob]) -> None:
        """Compute these when there is time; beyond `MAX_WAITING_CHUNKS` they are dropped."""
        for job in jobs:
            if self.pending() >= MAX_WAITING_CHUNKS:
                self.dropped += 1
            else:
                self.submit(job)

    def submit(self, job: ChunkJob) -> Future[bool]:
        """Compute `job`; the future says whether it was new, or carries the error."""
        with self._wake:
            known = self._jobs.get(job.ref.key)
            if known is not None:
                return known[1]
            future: Future[bool] = Future()
            if self._stopping:
                future.cancel()
            else:
                self._jobs[job.ref.key] = (job, future)
                self._wake.notify_all()
            return future

    def add_refill(self, leases: list[ChunkLease]) -> None:
        """Copy what was loaded into the upper tiers, then release the leases."""
        with self._wake:
            self._refills.append(leases)
            self._wake.notify_all()

    def notice(self) -> None:
        """The engine may have become idle."""
        with self._wake:
            self._wake.notify_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._refills or self._jobs)
                if self._stopping:
                    return
                leases = self._refills.popleft() if self._refills else None
                job, future = next(iter(self._jobs.values()), (None, None))
            if leases is not None:
                self._refill(leases)
            elif job is not None and future is not None and self._wait_for_a_gap():
                self._work(job, future)

    def _wait_for_a_gap(self) -> bool:
        """True when a chunk may be computed; False when something else came up first."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._wake:
            while not self._stopping and not self._refills:
                left = deadline - time.monotonic()
                if self._is_idle() or left <= 0:
                    return True
                self._wake.wait(min(left, 0.1))
            return False

    def _work(self, job: ChunkJob, future: Future[bool]) -> None:
        future.set_running_or_notify_cancel()
        try:
            new = not self._cache.contains(job.ref)
            if new:
                with self._exclusive():
                    kv, seconds = compute_chunk(self._model, self._cache, job)
                self._cache.put(job.ref, kv, seconds)
            future.set_result(new)
        except Exception as error:
            log.warning("chunk %s could not be computed: %s", job.ref.key[:12], error)
            future.set_exception(error)
        finally:
            with self._wake:
                self._jobs.pop(job.ref.key, None)
                self._wake.notify_all()

    def _refill(self, leases: list[ChunkLease]) -> None:
        try:
            for lease in leases:
                self._cache.refill(lease)
        except Exception as error:  # such as a device that is out of memory
            log.warning("chunk KV could not be copied to a faster tier: %s", error)
        finally:
            _release(leases)


def _release(leases: Iterable[ChunkLease]) -> None:
    for lease in leases:
        lease.release()
