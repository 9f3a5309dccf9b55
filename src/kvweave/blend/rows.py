"""Scattered rows of a prompt on their way through a model, layer by layer."""

from __future__ import annotations

import torch

from kvweave.blend.attention import CausalRows
from kvweave.blend.rope import RowPositions
from kvweave.models import BlendableModel


def run_layer(
    model: BlendableModel,
    layer: int,
    hidden: torch.Tensor,
    placed: RowPositions,
    causal: CausalRows,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """One layer over rows, whose keys and values are put at their positions.

    After the last layer only its KV is of use: the hidden states stay as they were.

    Args:
        hidden: `[rows, hidden]`.
        keys, values: of the layer, `[kv_heads, tokens, head_dim]`, keys rotated; written.

    Returns:
        the hidden states for the next layer.
    """
    q = placed.place(*model.qkv(layer, hidden), keys, values)
    if layer + 1 == model.layers:
        return hidden
    return model.finish(layer, hidden, causal.attend(q, keys, values, model.scale))


def run_apart(
    model: BlendableModel, hidden: torch.Tensor, placed: RowPositions, layers: int
) -> torch.Tensor:
    """Neighbouring rows through the first `layers` layers, seeing nothing but one another.

    hidden: `[rows, hidden]`, and so is what is returned.
    """
    apart = placed.apart()
    causal = CausalRows(apart.positions, model.dtype)
    keys = hidden.new_zeros(len(hidden), model.kv_heads, model.head_dim).transpose(0, 1)
    values = torch.zeros_like(keys)
    for layer in range(layers):
        hidden = run_layer(model, layer, hidden, apart, causal, keys, values)
    return hidden
