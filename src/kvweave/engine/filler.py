"""Answers the engine's question "which tokens of this prompt can you fill?" by blending."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers.generation.continuous_batching.cache import PagedAttentionCache

from kvweave.blend import (
    SELECTORS,
    BlendResult,
    Placement,
    PromptLayout,
    Selector,
    blended_prefill,
)
from kvweave.engine.background import BackgroundWork, ChunkJob
from kvweave.engine.errors import UnknownSelector
from kvweave.engine.pages import RequestPages
from kvweave.engine.report import ChunkReport, ReuseReport
from kvweave.kv import (
    ChunkCache,
    ChunkLease,
    ChunkLookup,
    ChunkRef,
    ChunkUnreadable,
    Found,
    Lookup,
    Planner,
    TraceWriter,
    chunk_ref,
)
from kvweave.models import BlendableModel
from kvweave.prompt import Prompt, Segment

#: Blending must leave at least this share of the prompt uncomputed, or a full prefill is run:
#: it is exact, and the probe and the gathering would cost about as much.
MIN_SAVED_SHARE = 0.1


@dataclass(slots=True)
class FillPlan:
    """What one request asked for, and what became of it."""

    prompt: Prompt
    tenant: str
    selector: Selector
    recompute_ratio: float
    report: ReuseReport
    submitted: float
    stretch: bool
    """Whether the ratio may be raised as far as loading hides the work."""
    blend: bool
    """Whether cached chunks may be used; otherwise the engine computes, or matches a prefix."""
    store_chunks: bool
    """Whether chunks that miss are computed afterwards and kept."""
    share_prefix: bool
    """Whether the engine's exact-prefix cache may serve this prompt and keep its pages."""
    filled: bool = False


@dataclass(slots=True)
class _Found:
    placements: list[Placement] = field(default_factory=list)
    missing: list[ChunkJob] = field(default_factory=list)
    left: list[ChunkLease] = field(default_factory=list)
    """Leases on chunks that are faster computed than loaded."""
    reports: dict[int, ChunkReport] = field(default_factory=dict)
    """What is told of each chunk, by the identity of its lease."""

    def leases(self) -> list[ChunkLease]:
        return [*(placement.lease for placement in self.placements), *self.left]

    def release(self) -> None:
        for lease in self.leases():
            lease.release()


class PromptFiller:
    """Fills the pages of prompts with cached and blended KV.

    `fill` runs in the engine's generation thread, one prompt at a time; plans are kept by request
    and dropped by `forget`.
    """

    def __init__(
        self,
        model: BlendableModel,
        model_identity: str,
        cache: ChunkCache,
        background: BackgroundWork,
        planner: Planner | None,
        *,
        overlap: bool,
        trace: TraceWriter | None = None,
    ) -> None:
        self._model = model
        self._identity = model_identity
        self._cache = cache
        self._background = background
        self._planner = planner
        self._overlap = overlap
        self._trace = trace
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

    def job(self, tenant: str, prefix_ids: tuple[int, ...], token_ids: tuple[int, ...]) -> ChunkJob:
        """What it takes to compute the KV of `token_ids` alone after `prefix_ids`."""
        ref = chunk_ref(self._identity, tenant, prefix_ids, token_ids)
        prefix = chunk_ref(self._identity, tenant, (), prefix_ids) if prefix_ids else None
        return ChunkJob(ref, prefix)

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
        found = _Found()
        try:
            self._look_up(plan, found)
            ratio = self._choose(plan, found)
            plan.report.time_ms["lookup"] = (time.perf_counter() - started) * 1e3
            result = self._blend(plan, found, ratio, request_id, prompt_ids, pages)
        except BaseException:
            found.release()
            raise
        if plan.store_chunks:
            self._background.add_chunks(found.missing)
        if result is None:
            found.release()
            return 0
        self._background.add_refill(found.leases())
        self._observe(result, found.placements)
        plan.report.recompute_ratio = ratio
        _report(plan.report, result, found)
        plan.report.loaded_bytes = sum(self._cache.nbytes(p.tokens) for p in found.placements)
        plan.filled = True
        return len(prompt_ids) - 1

    def _look_up(self, plan: FillPlan, found: _Found) -> None:
        plan.report.chunks.clear()
        position = 0
        everything_before_is_prefix = not plan.prompt.prefix_ids
        for segment in plan.prompt.segments:
            if segment.role != "fresh":
                is_chunk = segment.role == "chunk"
                job = self._job(plan, segment)
                lookup = self._cache.lookup(job.ref)
                self._record(job.ref, lookup)
                if lookup.lease is None:
                    found.missing.append(job)
                else:
                    exact = everything_before_is_prefix or not is_chunk
                    found.placements.append(Placement(lookup.lease, position, exact, is_chunk))
                if is_chunk:
                    tier = None if lookup.lease is None else lookup.lease.tier
                    report = ChunkReport(
                        segment.chunk_id or "", len(segment.token_ids), tier, lookup.miss_reason
                    )
                    plan.report.chunks.append(report)
                    found.reports[id(lookup.lease)] = report
            everything_before_is_prefix = segment.role == "system"
            position += len(segment.token_ids)

    def _record(self, ref: ChunkRef, lookup: Lookup) -> None:
        if self._trace is None:
            return
        tokens = len(ref.token_ids)
        seconds = 0.0 if lookup.lease is None else lookup.lease.recompute_seconds
        per_second = None if self._planner is None else self._planner.speeds()[1]
        if not seconds and per_second:
            seconds = tokens / per_second
        self._trace.append(
            ChunkLookup(
                t=time.time(),
                key=ref.key,
                content=ref.content,
                tokens=tokens,
                bytes=self._cache.nbytes(tokens),
                cost_ms=seconds * 1e3,
                tier=None if lookup.lease is None else lookup.lease.tier,
            )
        )

    def _choose(self, plan: FillPlan, found: _Found) -> float:
        """Leave what is faster computed than loaded; returns the ratio to recompute."""
        if self._planner is None:
            return plan.recompute_ratio
        pieces = [
            Found(p.lease.tier, p.tokens, self._cache.nbytes(p.tokens), p.exact)
            for p in found.placements
        ]
        held = sum(piece.tokens for piece in pieces)
        chosen = self._planner.plan(
            pieces, len(plan.prompt) - held, plan.recompute_ratio, stretch=plan.stretch
        )
        plan.report.plan = chosen.reason
        kept = zip(found.placements, chosen.load, strict=True)
        found.left = [p.lease for p, load in kept if not load]
        kept = zip(found.placements, chosen.load, strict=True)
        found.placements = [p for p, load in kept if load]
        return chosen.recompute_ratio

    def _observe(self, result: BlendResult, placements: list[Placement]) -> None:
        """Keep the planner's speeds current."""
        if self._planner is None:
            return
        self._planner.observe_compute(result.rows, result.compute_seconds)
        for tier in {p.lease.tier for p in placements}:
            leases = [(p.lease, self._cache.nbytes(p.tokens)) for p in placements]
            nbytes = sum(size for lease, size in leases if lease.tier == tier)
            windows = [lease.window for lease, _ in leases if lease.tier == tier]
            known = [window for window in windows if window is not None]
            if known:
                seconds = max(end for _, end in known) - min(start for start, _ in known)
                self._planner.observe_load(tier, nbytes, seconds)
            elif nbytes == sum(size for _, size in leases):
                self._planner.observe_load(tier, nbytes, result.load_seconds / result.passes)

    def _blend(
        self,
        plan: FillPlan,
        found: _Found,
        ratio: float,
        request_id: str,
        prompt_ids: Sequence[int],
        cache: PagedAttentionCache,
    ) -> BlendResult | None:
        pages = RequestPages(cache, request_id)
        allocated = False
        while True:
            layout = PromptLayout(prompt_ids, found.placements, self._model.device)
            if not _pays(layout, ratio):
                break
            if not allocated and not pages.allocate(layout.tokens - 1):
                break
            allocated = True
            try:
                result = blended_prefill(
                    self._model,
                    layout,
                    plan.selector,
                    ratio,
                    pages.write,
                    overlap=self._overlap,
                )
                if self._model.device.type == "cuda":
                    # The engine computes on a stream of its own.
                    torch.cuda.current_stream(self._model.device).synchronize()
                return result
            except ChunkUnreadable as error:
                self._drop(plan, found, error)
        if allocated:
            pages.free()
        return None

    def _drop(self, plan: FillPlan, found: _Found, error: ChunkUnreadable) -> None:
        """Turn a lease that could not be read into a miss."""
        for placement in [p for p in found.placements if p.lease.ref.key == error.key]:
            placement.lease.release()
            found.placements.remove(placement)
        reports = iter(plan.report.chunks)
        for segment in plan.prompt.segments:
            if segment.role == "fresh":
                continue
            report = next(reports) if segment.role == "chunk" else None
            job = self._job(plan, segment)
            if job.ref.key == error.key:
                found.missing.append(job)
                self._cache.note_unreadable(job.ref)
                if report is not None:
                    report.tier, report.miss_reason = None, "unreadable"

    def _job(self, plan: FillPlan, segment: Segment) -> ChunkJob:
        after = plan.prompt.prefix_ids if segment.role == "chunk" else ()
        return self.job(plan.tenant, after, segment.token_ids)


def _pays(layout: PromptLayout, recompute_ratio: float) -> bool:
    """Whether blending leaves enough of the prompt uncomputed to be worth it."""
    chosen = min(round(recompute_ratio * layout.chunk_tokens), int(layout.candidates.sum()))
    saved = layout.tokens - len(layout.forced) - chosen
    return saved >= MIN_SAVED_SHARE * layout.tokens


def _report(report: ReuseReport, result: BlendResult, found: _Found) -> None:
    report.forced = result.forced + 1  # the engine's own last token
    report.selected = result.selected
    report.rotated = result.rotated
    report.matched = sum(p.tokens for p in found.placements)
    report.cached_tokens = result.rotated - result.selected
    for placement in found.placements:
        if id(placement.lease) in found.reports:
            found.reports[id(placement.lease)].loaded = True
        tier, tokens = placement.lease.tier, placement.tokens
        report.loaded_tokens[tier] = report.loaded_tokens.get(tier, 0) + tokens
    report.time_ms |= {
        "load": result.load_seconds * 1e3,
        "probe": result.probe_seconds * 1e3,
        "compute": result.compute_seconds * 1e3,
        "write": result.write_seconds * 1e3,
    }


def selector_named(name: str) -> Selector:
    """The selector called `name`; see `UnknownSelector`."""
    try:
        return SELECTORS[name]
    except KeyError:
        raise UnknownSelector(name, SELECTORS) from None
