"""Select the tokens that the question attends to.

The question's tokens run through the model once over the cached KV as it is. How strongly they
attend to each cached token, in the layers where retrieval happens, says which tokens the answer
will be read from; those are the ones worth having right.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kvweave.blend.attention import CausalRows
from kvweave.blend.rope import RowPositions
from kvweave.blend.selectors.base import Selection, strongest
from kvweave.models import BlendableModel

#: The last tokens of the prompt stand for the question; more would cost more and say little more.
MAX_QUESTION_TOKENS = 64


class QueryAttention:
    """Highest attention probability over heads and question tokens, summed over layers.

    Only the upper two thirds of the layers count: lower ones attend to position and syntax.
    """

    def select(self, selection: Selection) -> torch.Tensor:
        model, layout, feed = selection.model, selection.layout, selection.feed
        rows = layout.question[-MAX_QUESTION_TOKENS:]
        visible = layout.cached.clone()
        visible[rows] = True
        scores = feed.recorded_scores(question_attention, MAX_QUESTION_TOKENS, rows, visible)
        if scores is None:
            scores = question_attention(
                model,
                layout.token_ids[rows],
                RowPositions(rows, feed.cos, feed.sin),
                CausalRows(rows, model.dtype, visible),
                feed.layer,
                layout.tokens,
            )
        return strongest(scores, layout.candidates, selection.budget)


def question_attention(
    model: BlendableModel,
    row_ids: torch.Tensor,
    placed: RowPositions,
    causal: CausalRows,
    layer_kv: Callable[[int], tuple[torch.Tensor, torch.Tensor]],
    tokens: int,
) -> torch.Tensor:
    """How strongly the rows attend to each position: fp32 `[tokens]`.

    row_ids: int64, the token ids of the rows.
    layer_kv: gives the cached KV of a layer; the rows' own is put into it.
    """
    scores = torch.zeros(tokens, dtype=torch.float32, device=model.device)
    hidden = model.embed(row_ids)
    for layer in range(model.layers):
        keys, values = layer_kv(layer)
        q = placed.place(*model.qkv(layer, hidden), keys, values)
        if layer < model.layers // 3:
            attended = causal.attend(q, keys, values, model.scale)
        else:
            attended, seen = causal.attend_and_observe(q, keys, values, model.scale)
            scores += model.combine_heads(seen, "max")
        if layer + 1 < model.layers:
            hidden = model.finish(layer, hidden, attended)
    return scores
