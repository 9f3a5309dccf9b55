"""The question run through the model over the cached KV as it is, watched by its attention."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import torch

from kvweave.blend.attention import CausalRows
from kvweave.blend.rope import RowPositions
from kvweave.blend.rows import run_apart
from kvweave.blend.selectors.base import Selection
from kvweave.models import BlendableModel

if TYPE_CHECKING:
    from kvweave.blend.gpu.recording import LayerKV, ScorePass

#: The last tokens of the prompt stand for the question; more would cost more and say little more.
MAX_QUESTION_TOKENS = 64


def question_scores(selection: Selection, score_pass: ScorePass) -> torch.Tensor:
    """What `score_pass` says of the prompt's question: fp32 `[tokens]`."""
    model, layout, feed = selection.model, selection.layout, selection.feed
    rows = layout.question[-MAX_QUESTION_TOKENS:]
    bias = torch.zeros_like(layout.cached, dtype=torch.float32)
    bias.index_fill_(0, layout.forced, float("-inf"))  # not there yet
    bias.index_fill_(0, rows, 0.0)
    scores = feed.recorded_scores(score_pass, MAX_QUESTION_TOKENS, rows, bias)
    if scores is None:
        scores = score_pass(
            model,
            layout.token_ids[rows],
            RowPositions(rows, feed.cos, feed.sin),
            CausalRows(rows, model.dtype, bias),
            feed.layer,
            layout.tokens,
        )
    selection.scores = scores
    return scores


def watch_heads(
    model: BlendableModel,
    row_ids: torch.Tensor,
    placed: RowPositions,
    causal: CausalRows,
    layer_kv: LayerKV,
    tokens: int,
    heads: Mapping[int, Collection[int] | None],
    *,
    apart: int = 0,
) -> torch.Tensor:
    """How strongly the rows attend to each position: fp32 `[tokens]`.

    The highest attention probability that any row gives a position, by any of the watched heads of
    a layer, summed over the layers. Layers after the last watched one are not run.

    Args:
        row_ids: int64, the token ids of the rows.
        layer_kv: gives the cached KV of a layer; the rows' own is put into it.
        heads: for each layer to watch, the heads; None: all of them.
        apart: in so many layers, from the first, the rows see nothing but one another, and no
            cached KV is asked for.
    """
    scores = torch.zeros(tokens, dtype=torch.float32, device=model.device)
    hidden = model.embed(row_ids)
    last = max(heads)
    if apart:
        hidden = run_apart(model, hidden, placed, apart)
    for layer in range(apart, last + 1):
        keys, values = layer_kv(layer)
        q = placed.place(*model.qkv(layer, hidden), keys, values)
        if layer not in heads:
            attended = causal.attend(q, keys, values, model.scale)
        else:
            watched = _heads_here(model, heads[layer])
            if layer == last and watched is not None:
                seen = causal.observe(q, keys, model.scale, watched)
            else:
                attended, seen = causal.attend_and_observe(q, keys, values, model.scale, watched)
            scores += model.combine_heads(seen, "max")
        if layer < last:
            hidden = model.finish(layer, hidden, attended)
    return scores


def _heads_here(model: BlendableModel, heads: Collection[int] | None) -> list[int] | None:
    """Of these heads, those that this rank has, numbered among its own; None: all."""
    if heads is None:
        return None
    here = (head - model.first_head for head in heads)
    return [head for head in here if 0 <= head < model.heads]
