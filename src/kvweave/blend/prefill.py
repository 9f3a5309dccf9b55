"""Blended prefill: a forward pass over the recompute set only, attending to everything before."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from kvweave.blend.attention import CausalRows
from kvweave.blend.feed import LayerFeed
from kvweave.blend.layout import PromptLayout
from kvweave.blend.rope import apply_rope
from kvweave.blend.selectors import Selection, Selector
from kvweave.models import BlendableModel

KVSink = Callable[[int, torch.Tensor, torch.Tensor], None]
"""Takes `(layer, keys, values)`, each `[kv_heads, tokens - 1, head_dim]`, keys rotated.

The tensors are scratch: copy what is to be kept before returning.
"""


@dataclass(frozen=True, slots=True)
class BlendResult:
    """What one blended prefill did, in tokens and seconds.

    Attributes:
        rows: tokens that went through the layers, forced and selected.
        passes: how often the cached KV was gathered and rotated (a probe is one of them).
        probe_seconds, compute_seconds: without the time spent in loading.
        load_seconds: time the computation stood still for loading and unpacking, all passes.
    """

    forced: int
    selected: int
    rotated: int
    rows: int
    passes: float
    probe_seconds: float
    compute_seconds: float
    write_seconds: float
    load_seconds: float


@torch.no_grad()
def blended_prefill(
    model: BlendableModel,
    layout: PromptLayout,
    selector: Selector,
    recompute_ratio: float,
    sink: KVSink,
    *,
    overlap: bool = True,
) -> BlendResult:
    """Fill the KV of all tokens of `layout` but the last, and hand it to `sink` layer by layer.

    Recomputed are the forced tokens (whatever is not cached) and up to
    `recompute_ratio * layout.chunk_tokens` cached ones, chosen by `selector`; every one of them
    attends, by absolute position, to all tokens before it. At ratio 1.0 the result is the full
    prefill's KV, at 0 plain reuse. (CacheBlend, EuroSys 2025, section 4.)

    Raises:
        ChunkUnreadable: a lease turned out to be unreadable; `sink` may have been called. Drop
            that lease and call again.
    """
    started = time.perf_counter()
    feed = LayerFeed(model, layout, overlap=overlap)
    selected = _select(model, layout, feed, selector, recompute_ratio)
    probed, probe_load = time.perf_counter(), feed.load_seconds
    rows = torch.cat([layout.forced, selected]).unique(sorted=True)
    write_seconds = _run_rows(model, layout, feed, rows, sink)
    done = time.perf_counter()
    return BlendResult(
        forced=len(layout.forced),
        selected=len(selected),
        rotated=int(layout.cached.sum()),
        rows=len(rows),
        passes=feed.layers_loaded / model.layers,
        probe_seconds=probed - started - probe_load,
        compute_seconds=done - probed - write_seconds - (feed.load_seconds - probe_load),
        write_seconds=write_seconds,
        load_seconds=feed.load_seconds,
    )


def _select(
    model: BlendableModel,
    layout: PromptLayout,
    feed: LayerFeed,
    selector: Selector,
    recompute_ratio: float,
) -> torch.Tensor:
    candidates = layout.candidates
    available = int(candidates.sum())
    budget = min(round(recompute_ratio * layout.chunk_tokens), available)
    if recompute_ratio >= 1.0 or budget == available:
        return candidates.nonzero().flatten()
    if budget == 0:
        return candidates.new_empty(0, dtype=torch.int64)
    return selector.select(Selection(model, layout, feed, budget))


def _run_rows(
    model: BlendableModel,
    layout: PromptLayout,
    feed: LayerFeed,
    rows: torch.Tensor,
    sink: KVSink,
) -> float:
    """The layer loop over `rows` (ascending positions). Returns the seconds spent in `sink`."""
    filled = layout.tokens - 1
    causal = CausalRows(rows, model.dtype)
    cos, sin = feed.cos[rows], feed.sin[rows]
    hidden = model.embed(layout.token_ids[rows])
    write_seconds = 0.0
    for layer in range(model.layers):
        keys, values = feed.layer(layer)
        if len(rows):
            q, k, v = model.qkv(layer, hidden)
            keys[:, rows], values[:, rows] = apply_rope(k, cos, sin), v
            if layer + 1 < model.layers:  # after the last layer only its KV is of use
                q = apply_rope(q, cos, sin)
                attended = causal.attend(q, keys, values, model.scale)
                hidden = model.finish(layer, hidden, attended)
        written = time.perf_counter()
        sink(layer, keys[:, :filled], values[:, :filled])
        write_seconds += time.perf_counter() - written
    return write_seconds
