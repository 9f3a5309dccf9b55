"""Select the tokens that the question attends to.

The question's tokens run through the model once over the cached KV as it is. How strongly they
attend to each cached token, in the layers where retrieval happens, says which tokens the answer
will be read from; those are the ones worth having right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvweave.blend.attention import CausalRows
from kvweave.blend.rope import RowPositions
from kvweave.blend.selectors.base import Selection, strongest
from kvweave.blend.selectors.probe import question_scores, watch_heads
from kvweave.models import BlendableModel

if TYPE_CHECKING:
    from kvweave.blend.gpu.recording import LayerKV


class QueryAttention:
    """Highest attention probability over heads and question tokens, summed over layers.

    Only the upper two thirds of the layers count: lower ones attend to position and syntax.
    """

    def select(self, selection: Selection) -> torch.Tensor:
        scores = question_scores(selection, question_attention)
        return strongest(scores, selection.layout.candidates, selection.budget)


def question_attention(
    model: BlendableModel,
    row_ids: torch.Tensor,
    placed: RowPositions,
    causal: CausalRows,
    layer_kv: LayerKV,
    tokens: int,
) -> torch.Tensor:
    """See `watch_heads`."""
    heads = dict.fromkeys(range(model.layers // 3, model.layers))
    return watch_heads(model, row_ids, placed, causal, layer_kv, tokens, heads)
