"""The half of the connector that lives with a worker: it holds chunk KV, and fills pages."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvweave.blend import BlendResult, StartedBlend
from kvweave.config import Config
from kvweave.integrations.vllm.messages import Answer, Ask, Fill, StepNews, StepOrders, Store
from kvweave.integrations.vllm.pages import PageWriter, RequestPages
from kvweave.integrations.vllm.refill import Refiller
from kvweave.kv import ChunkCache, ChunkUnreadable, Planner
from kvweave.models import BlendableModel
from kvweave.reuse import (
    ChunkReuse,
    FoundChunks,
    ReuseReport,
    ReuseRequest,
    compute_chunk,
    selector_named,
)

log = logging.getLogger("vllm.kvweave")


@dataclass(slots=True)
class _Asked:
    """A request whose chunks are leased; `started` where its tokens are chosen already."""

    request: ReuseRequest
    found: FoundChunks
    tokens: int
    answered: bool = False
    started: StartedBlend | None = None


@dataclass(slots=True)
class _Filled:
    """A fill whose work is queued on the device; its leases are held until that is done."""

    request_id: str
    request: ReuseRequest
    found: FoundChunks
    result: BlendResult


class WorkerHalf:
    """Chunk KV of this worker's heads, and the blending of it into vLLM's pages.

    Everything that computes runs in `step`, in the worker's own thread between vLLM's own work;
    other threads move bytes only.

    Args:
        rank, ranks: of the tensor-parallel group.
    """

    def __init__(
        self,
        model: BlendableModel,
        reuse: ChunkReuse,
        cache: ChunkCache,
        planner: Planner,
        writer: PageWriter,
        settings: Config,
        *,
        rank: int,
        ranks: int,
    ) -> None:
        self._model = model
        self._reuse = reuse
        self._cache = cache
        self._planner = planner
        self._writer = writer
        self._settings = settings
        self._rank = rank
        self._ranks = ranks
        self._asked: dict[str, _Asked] = {}
        self._filled: list[_Filled] = []
        self._failed_blocks: set[int] = set()
        self._refiller = Refiller(cache, model.device)
        self._news = StepNews()

    def step(self, orders: StepOrders) -> None:
        """Do what the scheduler orders. Fills first: this step's forward pass reads them."""
        for fill in orders.fills:
            self._fill(fill)
        for request_id in orders.drops:
            self._drop(request_id)
        for ask in orders.asks:
            self._look_up(ask)
        if orders.store is not None:
            self._store(orders.store)

    def news(self) -> StepNews:
        """What there is to tell the scheduler after this step."""
        self._settle()
        for request_id, asked in self._asked.items():
            if not asked.answered and self._is_loaded(asked):
                asked.answered = True
                self._news.answers[request_id] = {self._rank: self._answer(asked)}
        news, self._news = self._news, StepNews()
        news.tiers = {
            str(name): (fill.chunks, fill.used_bytes, fill.capacity_bytes)
            for name, fill in self._cache.stats().items()
        }
        tiers, per_second = self._planner.speeds()
        news.speeds = {str(tier): speed for tier, speed in tiers.items()}, per_second
        return news

    def take_failed_blocks(self) -> set[int]:
        """Pages that could not be filled since the last call; vLLM computes them."""
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def close(self) -> None:
        """Give everything back. Chunk KV on disk is kept."""
        for request_id in list(self._asked):
            self._drop(request_id)
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)
        self._settle()
        self._refiller.close()
        self._cache.close()

    # -- asks --------------------------------------------------------------------------------------

    def _look_up(self, ask: Ask) -> None:
        started = time.perf_counter()
        marks, kv = ask.marks, self._settings.kv_cache
        prompt = marks.prompt(ask.token_ids[: ask.prompt_tokens])
        reuse_only = marks.mode == "reuse"
        selector = "none" if reuse_only else marks.selector or kv.selector
        ratio = 0.0 if reuse_only else marks.recompute_ratio
        stretch = ratio is None and kv.recompute_ratio == "auto"
        if ratio is None:
            automatic = kv.recompute_ratio == "auto"
            ratio = kv.min_recompute_ratio if automatic else float(kv.recompute_ratio)
        request = ReuseRequest(
            prompt=prompt,
            tenant=marks.tenant,
            selector=selector_named(selector),
            recompute_ratio=ratio,
            stretch=stretch,
            report=ReuseReport.of(marks.mode, selector, len(prompt)),
        )
        found = self._reuse.look_up(request)
        for placement in found.placements:
            for layer in range(self._model.layers):
                placement.lease.prefetch(layer)
        request.report.time_ms["lookup"] = (time.perf_counter() - started) * 1e3
        self._drop(ask.request_id)
        asked = _Asked(request, found, len(ask.token_ids))
        self._asked[ask.request_id] = asked
        self._start_early(asked, ask.token_ids)

    def _start_early(self, asked: _Asked, token_ids: Sequence[int]) -> None:
        """Choose the tokens, and compute few, while the scheduler hears of it and finds pages.

        Only the GPU gains by it, only the latest request's work survives in the workspace, and what
        ranks do must not depend on what lies ready with each: so not with tensor parallelism.
        """
        alone = self._ranks == 1 and len(self._asked) == 1
        if not (alone and self._model.device.type == "cuda" and self._is_loaded(asked)):
            return
        try:
            asked.started = self._reuse.start(asked.request, asked.found, token_ids)
        except Exception:
            log.exception("blending ahead of the pages failed; it is tried again with them")

    def _is_loaded(self, asked: _Asked) -> bool:
        """Whether reading will not wait. What turns out to be unreadable becomes a miss."""
        while True:
            try:
                return all(placement.lease.ready() for placement in asked.found.placements)
            except ChunkUnreadable as error:
                self._reuse.drop(asked.request, asked.found, error)

    def _answer(self, asked: _Asked) -> Answer:
        found = asked.found
        outlook = found.outlook(asked.tokens)
        report = asked.request.report
        placements = found.placements if outlook.worthwhile else []
        report.forced = (outlook.forced + 1) if placements else len(asked.request.prompt)
        report.selected = outlook.selected if placements else 0
        return Answer(
            starts=tuple(placement.start for placement in placements),
            tokens={placement.start: placement.tokens for placement in placements},
            missing=self._missing(asked),
            recompute_ratio=found.recompute_ratio,
            forced=outlook.forced,
            selected=outlook.selected,
            report=report.to_dict(),
        )

    def _missing(self, asked: _Asked) -> tuple[int, ...]:
        held = {lease.ref.token_ids for lease in asked.found.leases()}
        missing = []
        position = 0
        for segment in asked.request.prompt.segments:
            if segment.role != "fresh" and segment.token_ids not in held:
                missing.append(position)
            position += len(segment.token_ids)
        return tuple(missing)

    def _drop(self, request_id: str) -> None:
        asked = self._asked.pop(request_id, None)
        if asked is not None:
            asked.found.release()

    # -- fills -------------------------------------------------------------------------------------

    def _fill(self, fill: Fill) -> None:
        asked = self._asked.pop(fill.request_id, None)
        failed = fill.block_ids[fill.first // self._writer.block_tokens :]
        if asked is None:
            log.error("%s: no chunks are held for it; its prompt is computed", fill.request_id)
            self._failed_blocks.update(failed)
            return
        found = asked.found
        found.keep_only(fill.starts)
        found.recompute_ratio = fill.recompute_ratio
        last = len(fill.token_ids) - 1
        pages = RequestPages(self._writer, fill.block_ids, fill.first, last, self._model.device)
        result = None
        try:
            result = self._reuse.blend(
                asked.request, found, fill.token_ids, lambda: pages.write, asked.started
            )
        except Exception:  # a failure here must cost time, not the request nor the engine
            log.exception("%s: blending failed; its prompt is computed", fill.request_id)
        if result is None:
            found.release()
            self._failed_blocks.update(failed)
            return
        self._filled.append(_Filled(fill.request_id, asked.request, found, result))

    def _store(self, store: Store) -> None:
        job = self._reuse.job(store.tenant, store.prefix_ids, store.token_ids)
        try:
            kv, seconds = compute_chunk(self._model, self._cache, job)
            self._cache.put(job.ref, kv, seconds)
        except Exception as error:
            log.warning("chunk %s could not be computed: %s", job.ref.key[:12], error)

    def _settle(self) -> None:
        """Account for fills that the device has finished, and give up their leases."""
        unfinished = []
        for filled in self._filled:
            if not filled.result.is_done():
                unfinished.append(filled)
                continue
            self._reuse.account(filled.request, filled.found, filled.result)
            self._news.reports[filled.request_id] = filled.request.report.to_dict()
            self._refiller.add(filled.found.leases())
        self._filled = unfinished
