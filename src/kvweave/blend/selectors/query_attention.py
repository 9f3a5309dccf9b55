"""Select the tokens that the question attends to.

The question's tokens run through the model once over the cached KV as it is. How strongly they
attend to each cached token, in the layers where retrieval happens, says which tokens the answer
will be read from; those are the ones worth having right.
"""

from __future__ import annotations

import torch

from kvweave.blend.attention import CausalRows
from kvweave.blend.rope import apply_rope
from kvweave.blend.selectors.base import Selection, strongest

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
        causal = CausalRows(rows, model.dtype, visible)
        cos, sin = feed.cos[rows], feed.sin[rows]
        scores = torch.zeros(layout.tokens, dtype=torch.float32, device=model.device)
        hidden = model.embed(layout.token_ids[rows])
        for layer in range(model.layers):
            keys, values = feed.layer(layer)
            q, k, v = model.qkv(layer, hidden)
            q, keys[:, rows], values[:, rows] = apply_rope(q, cos, sin), apply_rope(k, cos, sin), v
            if layer < model.layers // 3:
                attended = causal.attend(q, keys, values, model.scale)
            else:
                attended, seen = causal.attend_and_observe(q, keys, values, model.scale)
                scores += seen
            if layer + 1 < model.layers:
                hidden = model.finish(layer, hidden, attended)
        return strongest(scores, layout.candidates, selection.budget)
