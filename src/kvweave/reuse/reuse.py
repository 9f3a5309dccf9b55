"""From a prompt to blended KV: look its chunks up, decide what to load, blend, and account."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvweave.blend import (
    BlendResult,
    KVSink,
    Placement,
    PromptLayout,
    Selected,
    Selector,
    StartedBlend,
    finish_blend,
    select_tokens,
    start_blend,
)
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
)
from kvweave.models import BlendableModel
from kvweave.prompt import Prompt
from kvweave.reuse.jobs import ChunkJob, chunk_job, parts
from kvweave.reuse.report import ChunkReport, ReuseReport

if TYPE_CHECKING:
    from kvweave.blend.gpu.workspace import Workspace

#: Blending must leave at least this share of the prompt uncomputed, or a full prefill is run:
#: it is exact, and the probe and the gathering would cost about as much.
MIN_SAVED_SHARE = 0.1


@dataclass(slots=True)
class ReuseRequest:
    """One prompt, and how its cached chunk KV is to be used.

    report: filled in on the way.
    """

    prompt: Prompt
    tenant: str
    selector: Selector
    recompute_ratio: float
    stretch: bool
    """Whether the ratio may be raised as far as loading hides the work."""
    report: ReuseReport


@dataclass(frozen=True, slots=True)
class Outlook:
    """What blending a prompt will come to, in tokens; `selected` is the most there can be."""

    forced: int
    selected: int
    rotated: int
    worthwhile: bool

    @property
    def rows(self) -> int:
        """Tokens that will go through the layers."""
        return self.forced + self.selected


@dataclass(slots=True)
class FoundChunks:
    """What of one prompt is stored. `release` gives up every lease.

    Attributes:
        placements: leased KV that will be loaded, at its place in the prompt.
        missing: chunks (and the system prefix) that are not stored.
        left: leases on chunks that are faster computed than loaded.
        recompute_ratio: share of the loaded chunk tokens to compute again.
    """

    placements: list[Placement] = field(default_factory=list)
    missing: list[ChunkJob] = field(default_factory=list)
    left: list[ChunkLease] = field(default_factory=list)
    recompute_ratio: float = 0.0
    reports: dict[int, ChunkReport] = field(default_factory=dict)
    """What is told of each chunk, by the identity of its lease."""

    def leases(self) -> list[ChunkLease]:
        return [*(placement.lease for placement in self.placements), *self.left]

    def release(self) -> None:
        for lease in self.leases():
            lease.release()

    def keep_only(self, starts: Collection[int]) -> None:
        """Load only the placements that begin at these positions; the rest is computed."""
        self.left += [p.lease for p in self.placements if p.start not in starts]
        self.placements = [p for p in self.placements if p.start in starts]

    def outlook(self, tokens: int) -> Outlook:
        """What blending a prompt of `tokens` tokens with this will come to."""
        last = tokens - 1  # never filled: it belongs to the engine
        held = [(min(p.start + p.tokens, last) - p.start, p) for p in self.placements]
        cached = sum(count for count, _ in held)
        candidates = sum(count for count, p in held if not p.exact)
        chunk_tokens = sum(p.tokens for p in self.placements if p.is_chunk)
        selected = min(round(self.recompute_ratio * chunk_tokens), candidates)
        saved = cached - selected + 1
        return Outlook(last - cached, selected, cached, saved >= MIN_SAVED_SHARE * tokens)


class ChunkReuse:
    """Finds cached chunk KV for prompts and blends it. Holds no state of any request.

    workspace: see `kvweave.blend.make_workspace`.

    `look_up`, then `blend`, then (when the result's times are known) `account`.
    """

    def __init__(
        self,
        model: BlendableModel,
        model_identity: str,
        cache: ChunkCache,
        planner: Planner | None,
        *,
        overlap: bool,
        trace: TraceWriter | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        self._workspace = workspace
        self._model = model
        self._identity = model_identity
        self._cache = cache
        self._planner = planner
        self._overlap = overlap
        self._trace = trace

    def job(self, tenant: str, prefix_ids: tuple[int, ...], token_ids: tuple[int, ...]) -> ChunkJob:
        """What it takes to compute the KV of `token_ids` alone after `prefix_ids`."""
        return chunk_job(self._identity, tenant, prefix_ids, token_ids)

    def look_up(self, request: ReuseRequest) -> FoundChunks:
        """Lease what is stored of the prompt, and decide what of it to load."""
        found = FoundChunks(recompute_ratio=request.recompute_ratio)
        try:
            self._lease(request, found)
            self._choose(request, found)
        except BaseException:
            found.release()
            raise
        return found

    def start(
        self, request: ReuseRequest, found: FoundChunks, token_ids: Sequence[int]
    ) -> StartedBlend | None:
        """Choose what `blend` will compute again, ahead of it; None if it will not pay."""
        while found.outlook(len(token_ids)).worthwhile:
            try:
                return self._start(request, found, token_ids)
            except ChunkUnreadable as error:
                self.drop(request, found, error)
        return None

    def blend(
        self,
        request: ReuseRequest,
        found: FoundChunks,
        token_ids: Sequence[int],
        open_sink: Callable[[], KVSink | None],
        started: StartedBlend | None = None,
    ) -> BlendResult | None:
        """Compute the KV of all of `token_ids` but the last; None if that is not worth it.

        A chunk that turns out to be unreadable becomes a miss, and the work begins anew.

        Args:
            token_ids: the prompt, possibly with tokens behind it, which are computed.
            open_sink: asked once for where the KV goes, when it is certain to pay; None: there is
                no room.
            started: what `start` gave, if it was called; begun anew where it no longer fits.
        """
        sink = None
        while found.outlook(len(token_ids)).worthwhile:
            sink = sink or open_sink()
            if sink is None:
                return None
            ratio = found.recompute_ratio
            try:
                if started is None or not started.fits(token_ids, found.placements, ratio):
                    started = self._start(request, found, token_ids)
                return finish_blend(started, sink)
            except ChunkUnreadable as error:
                self.drop(request, found, error)
        return None

    def select(
        self, request: ReuseRequest, token_ids: Sequence[int]
    ) -> tuple[PromptLayout, Selected]:
        """What `blend` would work on, and what of it it would compute again.

        Without leases: the layout says where KV was found, and must not be blended.

        Raises:
            ChunkUnreadable: a chunk turned out to be unreadable.
        """
        found = self.look_up(request)
        try:
            if not found.outlook(len(token_ids)).worthwhile:
                request.report.plan = request.report.plan or "computed in full: little is cached"
                layout = PromptLayout(token_ids, (), self._model.device)
                return layout, Selected(layout.candidate_positions)
            layout = PromptLayout(token_ids, found.placements, self._model.device)
            request.report.recompute_ratio = found.recompute_ratio
            ratio = found.recompute_ratio
            return layout, select_tokens(self._model, layout, request.selector, ratio)
        finally:
            found.release()

    def drop(self, request: ReuseRequest, found: FoundChunks, error: ChunkUnreadable) -> None:
        """Turn a lease that could not be read into a miss."""
        for placement in [p for p in found.placements if p.lease.ref.key == error.key]:
            placement.lease.release()
            found.placements.remove(placement)
        reports = iter(request.report.chunks)
        for part in parts(request.prompt, self._identity, request.tenant):
            report = next(reports) if part.is_chunk else None
            if part.job.ref.key == error.key:
                found.missing.append(part.job)
                self._cache.note_unreadable(part.job.ref)
                if report is not None:
                    report.tier, report.miss_reason = None, "unreadable"

    def account(self, request: ReuseRequest, found: FoundChunks, result: BlendResult) -> None:
        """Write the outcome into the request's report, and keep the planner's speeds current."""
        self._observe(result, found.placements)
        request.report.recompute_ratio = found.recompute_ratio
        _report(request.report, result, found)
        request.report.loaded_bytes = sum(self._cache.nbytes(p.tokens) for p in found.placements)

    def _start(
        self, request: ReuseRequest, found: FoundChunks, token_ids: Sequence[int]
    ) -> StartedBlend:
        return start_blend(
            self._model,
            PromptLayout(token_ids, found.placements, self._model.device),
            request.selector,
            found.recompute_ratio,
            overlap=self._overlap,
            workspace=self._workspace,
        )

    def _lease(self, request: ReuseRequest, found: FoundChunks) -> None:
        request.report.chunks.clear()
        for part in parts(request.prompt, self._identity, request.tenant):
            lookup = self._cache.lookup(part.job.ref)
            self._record(part.job.ref, lookup)
            if lookup.lease is None:
                found.missing.append(part.job)
            else:
                placement = Placement(lookup.lease, part.start, part.exact, part.is_chunk)
                found.placements.append(placement)
            if part.is_chunk:
                tier = None if lookup.lease is None else lookup.lease.tier
                segment = part.segment
                report = ChunkReport(
                    segment.chunk_id or "", len(segment.token_ids), tier, lookup.miss_reason
                )
                request.report.chunks.append(report)
                found.reports[id(lookup.lease)] = report

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

    def _choose(self, request: ReuseRequest, found: FoundChunks) -> None:
        """Leave what is faster computed than loaded, and settle the ratio to recompute."""
        if self._planner is None:
            return
        pieces = [
            Found(p.lease.tier, p.tokens, self._cache.nbytes(p.tokens), p.exact)
            for p in found.placements
        ]
        held = sum(piece.tokens for piece in pieces)
        chosen = self._planner.plan(
            pieces, len(request.prompt) - held, request.recompute_ratio, stretch=request.stretch
        )
        request.report.plan = chosen.reason
        kept = list(zip(found.placements, chosen.load, strict=True))
        found.left = [p.lease for p, load in kept if not load]
        found.placements = [p for p, load in kept if load]
        found.recompute_ratio = chosen.recompute_ratio

    def _observe(self, result: BlendResult, placements: list[Placement]) -> None:
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


def _report(report: ReuseReport, result: BlendResult, found: FoundChunks) -> None:
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
