"""Blended prefill: a forward pass over the recompute set only, attending to everything before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kvweave.blend.attention import CausalRows
from kvweave.blend.feed import LayerFeed, make_feed
from kvweave.blend.layout import Placement, PromptLayout
from kvweave.blend.rope import RowPositions
from kvweave.blend.rows import run_layer
from kvweave.blend.selectors import Selection, Selector
from kvweave.blend.stale import stale_bias
from kvweave.blend.timing import Stopwatch
from kvweave.models import BlendableModel

if TYPE_CHECKING:
    from kvweave.blend.gpu.workspace import Workspace

KVSink = Callable[[int, torch.Tensor, torch.Tensor], None]
"""Takes `(layer, keys, values)`, each `[kv_heads, tokens - 1, head_dim]`, keys rotated.

The tensors are scratch: copy what is to be kept before returning.
"""


class BlendResult:
    """What one blended prefill did, in tokens and seconds.

    On a GPU the work may still be going on; times wait for it, `is_done` does not.

    Attributes:
        rows: tokens that went through the layers, forced and selected.
        passes: how often the cached KV was gathered and rotated (a probe is one of them).
    """

    def __init__(
        self,
        layout: PromptLayout,
        feed: LayerFeed,
        clock: Stopwatch,
        *,
        resumed: int,
        rows: int,
        passes: float,
        write_seconds: float,
        probe_stalled: float,
        compute_stalled: float,
    ) -> None:
        self.forced = len(layout.forced)
        self.rotated = layout.cached_tokens
        self.rows = rows
        self.passes = passes
        self.write_seconds = write_seconds
        self._probe_stalled = probe_stalled
        self._compute_stalled = compute_stalled
        self._feed = feed
        self._clock = clock
        self._resumed = resumed

    @property
    def selected(self) -> int:
        """Cached tokens that were computed again."""
        return self.rows - self.forced

    @property
    def load_seconds(self) -> float:
        """Time spent in loading and unpacking, all passes; on a GPU that runs beside the rest."""
        return self._feed.load_seconds()

    @property
    def probe_seconds(self) -> float:
        """Time the selector took, without the time spent in loading."""
        return self._clock.seconds(_START, _PROBED) - self._probe_stalled

    @property
    def compute_seconds(self) -> float:
        """Time the layers took, without the time spent in loading and writing."""
        return self._clock.seconds(self._resumed, self._resumed + 1) - self._compute_stalled

    def is_done(self) -> bool:
        """Whether the device has finished, so that leases may go and times are known."""
        return self._clock.is_done()


_START, _PROBED, _COMPUTED = range(3)


@dataclass(frozen=True, slots=True)
class Selected:
    """The cached positions (int64) that are computed again; see `Selection` for the scores."""

    positions: torch.Tensor
    scores: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class StartedBlend:
    """A blended prefill whose tokens are chosen.

    Attributes:
        rows: int64, ascending: all positions that are computed, forced and selected.
        bias: see `kvweave.blend.stale`.
        computed: whether they are computed already, and `feed` gives the finished layers.
    """

    model: BlendableModel
    layout: PromptLayout
    recompute_ratio: float
    feed: LayerFeed
    clock: Stopwatch
    probe_stalled: float
    rows: torch.Tensor
    bias: torch.Tensor | None
    computed: bool

    def fits(self, token_ids: Sequence[int], placements: Sequence[Placement], ratio: float) -> bool:
        """Whether this is the beginning of that work, and what it brought in is still there."""
        return (
            self.feed.is_current()
            and self.recompute_ratio == ratio
            and self.layout.placements == tuple(placements)
            and self.layout.ids.tolist() == list(token_ids)
        )


@torch.no_grad()
def blended_prefill(
    model: BlendableModel,
    layout: PromptLayout,
    selector: Selector,
    recompute_ratio: float,
    sink: KVSink,
    *,
    overlap: bool = True,
    workspace: Workspace | None = None,
) -> BlendResult:
    """Fill the KV of all tokens of `layout` but the last, and hand it to `sink` layer by layer.

    Recomputed are the forced tokens (whatever is not cached) and up to
    `recompute_ratio * layout.chunk_tokens` cached ones, chosen by `selector`; every one of them
    attends, by absolute position, to all tokens before it, less to those that stay as they were
    (see `kvweave.blend.stale`). At ratio 1.0 the result is the full prefill's KV, at 0 plain reuse.
    (CacheBlend, EuroSys 2025, section 4.)

    workspace: what `make_workspace` gave for this model, kept from one prompt to the next.

    On a GPU everything is queued in the current stream, and nothing waits for it.

    Raises:
        ChunkUnreadable: a lease turned out to be unreadable; `sink` may have been called. Drop
            that lease and call again.
    """
    started = start_blend(
        model, layout, selector, recompute_ratio, overlap=overlap, workspace=workspace
    )
    return finish_blend(started, sink)


@torch.no_grad()
def start_blend(
    model: BlendableModel,
    layout: PromptLayout,
    selector: Selector,
    recompute_ratio: float,
    *,
    overlap: bool = True,
    workspace: Workspace | None = None,
) -> StartedBlend:
    """The part of `blended_prefill` that needs no room for the result.

    The tokens are chosen, and also computed where there is a place for the KV of all layers until
    `finish_blend`. An engine can queue this while it still looks for room. Arguments and errors are
    the same.
    """
    clock = Stopwatch(model.device)
    clock.mark()
    feed = make_feed(model, layout, workspace, overlap=overlap)
    selected = _select(model, layout, feed, selector, recompute_ratio).positions
    clock.mark()
    # Forced positions are not cached and selected ones are: none is in both.
    rows = torch.cat([layout.forced, selected]).sort().values
    bias = stale_bias(layout, selected)
    stalled = feed.stalled_seconds()
    computed = len(rows) > 0 and feed.keeps_layers
    if computed and not feed.recorded_rows(rows, bias):
        for _ in _computed_layers(model, layout, feed, rows, bias):
            pass
    clock.mark()
    return StartedBlend(model, layout, recompute_ratio, feed, clock, stalled, rows, bias, computed)


@torch.no_grad()
def finish_blend(started: StartedBlend, sink: KVSink) -> BlendResult:
    """The rest of `blended_prefill`. No other prompt may have used the workspace in between."""
    feed, clock = started.feed, started.clock
    clock.wait_for(_COMPUTED)
    resumed = clock.mark()
    write_seconds = _run_rows(started, sink)
    clock.mark()
    stalled = feed.stalled_seconds() - started.probe_stalled
    return BlendResult(
        started.layout,
        feed,
        clock,
        resumed=_PROBED if started.computed else resumed,
        rows=len(started.rows),
        passes=feed.layers_loaded / started.model.layers,
        write_seconds=write_seconds,
        probe_stalled=started.probe_stalled,
        compute_stalled=0.0 if started.computed else stalled + write_seconds,
    )


@torch.no_grad()
def select_tokens(
    model: BlendableModel, layout: PromptLayout, selector: Selector, recompute_ratio: float
) -> Selected:
    """What `blended_prefill` would compute again, and nothing more.

    Raises:
        ChunkUnreadable: a lease turned out to be unreadable.
    """
    feed = make_feed(model, layout, overlap=True)
    return _select(model, layout, feed, selector, recompute_ratio)


def _select(
    model: BlendableModel,
    layout: PromptLayout,
    feed: LayerFeed,
    selector: Selector,
    recompute_ratio: float,
) -> Selected:
    available = len(layout.candidate_positions)
    budget = min(round(recompute_ratio * layout.chunk_tokens), available)
    if recompute_ratio >= 1.0 or budget == available:
        return Selected(layout.candidate_positions)
    if budget == 0:
        return Selected(layout.candidate_positions[:0])
    selection = Selection(model, layout, feed, budget)
    return Selected(selector.select(selection), selection.scores)


def _run_rows(started: StartedBlend, sink: KVSink) -> float:
    """Hand all layers on, computed where they are not yet. Returns the host's seconds in `sink`."""
    model, layout, feed = started.model, started.layout, started.feed
    layers: Iterator[tuple[torch.Tensor, torch.Tensor]]
    if started.computed or not len(started.rows):
        layers = map(feed.layer, range(model.layers))
    else:
        layers = _computed_layers(model, layout, feed, started.rows, started.bias)
    filled = layout.tokens - 1
    write_seconds = 0.0
    for layer, (keys, values) in enumerate(layers):
        written = time.perf_counter()
        sink(layer, keys[:, :filled], values[:, :filled])
        write_seconds += time.perf_counter() - written
    return write_seconds


def _computed_layers(
    model: BlendableModel,
    layout: PromptLayout,
    feed: LayerFeed,
    rows: torch.Tensor,
    bias: torch.Tensor | None,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """All layers one by one, with the rows' keys and values in them."""
    causal = CausalRows(rows, model.dtype, bias)
    placed = RowPositions(rows, feed.cos, feed.sin)
    hidden = model.embed(layout.token_ids[rows])
    for layer in range(model.layers):
        keys, values = feed.layer(layer)
        hidden = run_layer(model, layer, hidden, placed, causal, keys, values)
        yield keys, values
