"""Answers the engine's question "which tokens of this prompt can you fill?" by blending."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers.generation.continuous_batching.cache import PagedAttentionCache

from kvweave.blend import KVSink
from kvweave.engine.background import BackgroundWork
from kvweave.engine.pages import RequestPages
from kvweave.engine.request import Progress
from kvweave.reuse import ChunkReuse, ReuseRequest


@dataclass(slots=True)
class FillPlan(ReuseRequest):
    """What one request asked for, and what became of it."""

    submitted: float
    blend: bool
    """Whether cached chunks may be used; otherwise the engine computes, or matches a prefix."""
    store_chunks: bool
    """Whether chunks that miss are computed afterwards and kept."""
    share_prefix: bool
    """Whether the engine's exact-prefix cache may serve this prompt and keep its pages."""
    audit: bool = False
    """Whether it is to be audited, once it is answered."""
    filled: bool = False
    progress: Progress = field(default_factory=Progress)
    """For the caller; written by the generation thread."""


class PromptFiller:
    """Fills the pages of prompts with cached and blended KV.

    `fill` runs in the engine's generation thread, one prompt at a time; plans are kept by request
    and dropped by `forget`.
    """

    def __init__(self, reuse: ChunkReuse, background: BackgroundWork, device: torch.device) -> None:
        self._reuse = reuse
        self._background = background
        self._device = device
        self._plans: dict[str, FillPlan] = {}
        self._lock = threading.Lock()

    def register(self, request_id: str, plan: FillPlan) -> None:
        with self._lock:
            self._plans[request_id] = plan

    def forget(self, request_id: str) -> None:
        with self._lock:
            self._plans.pop(request_id, None)

    def plan(self, request_id: str) -> FillPlan | None:
        with self._lock:
            return self._plans.get(request_id)

    def fill(self, request_id: str, prompt_ids: Sequence[int], pages: PagedAttentionCache) -> int:
        """Fill the pages of all prompt tokens but the last; returns how many that are, or 0.

        0 means: nothing worth it is cached, or there is no room; compute the prompt in full. After
        a preemption `prompt_ids` is longer than the plan's prompt; what was added is computed.
        """
        plan = self.plan(request_id)
        if plan is None or not plan.blend or plan.filled or len(prompt_ids) < 2:
            return 0
        started = time.perf_counter()
        plan.report.time_ms["queue"] = (started - plan.submitted) * 1e3
        found = self._reuse.look_up(plan)
        plan.report.time_ms["lookup"] = (time.perf_counter() - started) * 1e3
        request_pages = RequestPages(pages, request_id)
        allocated = False

        def open_sink() -> KVSink | None:
            nonlocal allocated
            allocated = request_pages.allocate(len(prompt_ids) - 1)
            return request_pages.write if allocated else None

        plan.progress.prompt_tokens = len(plan.prompt)  # nothing stops half way
        try:
            result = self._reuse.blend(plan, found, prompt_ids, open_sink)
        except BaseException:
            found.release()
            raise
        if plan.store_chunks:
            self._background.add_chunks(found.missing)
        if result is None:
            if allocated:
                request_pages.free()
            found.release()
            return 0
        if self._device.type == "cuda":
            # The engine computes on a stream of its own.
            torch.cuda.current_stream(self._device).synchronize()
        self._background.add_refill(found.leases())
        self._reuse.account(plan, found, result)
        plan.filled = True
        return len(prompt_ids) - 1
