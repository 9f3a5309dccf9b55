"""Chunk KV itself: computed once, alone, after the shared system prefix."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvweave.blend.attention import CausalRows
from kvweave.blend.rope import apply_rope
from kvweave.kv import KVLayout
from kvweave.models import BlendableModel


def kv_layout(model: BlendableModel) -> KVLayout:
    """How the KV of `model` is stored."""
    return KVLayout(model.layers, model.kv_heads, model.head_dim, model.dtype)


@torch.no_grad()
def compute_chunk_kv(
    model: BlendableModel, token_ids: Sequence[int], prefix_kv: torch.Tensor | None = None
) -> torch.Tensor:
    """The KV of `token_ids` placed right after the prefix, attending to the prefix and itself.

    Args:
        token_ids: the chunk, encoded alone; at least one token.
        prefix_kv: stored KV of the shared system prefix (`KVLayout.shape`), or None for none.

    Returns:
        `KVLayout.shape(len(token_ids))`, keys before RoPE, in memory of its own.
    """
    prefix = 0 if prefix_kv is None else prefix_kv.shape[3]
    tokens = len(token_ids)
    positions = torch.arange(prefix + tokens, device=model.device)
    cos, sin = model.rope_table(positions)
    here = slice(prefix, prefix + tokens)
    causal = CausalRows(positions[here], model.dtype)
    ids = torch.tensor(token_ids, dtype=torch.int64, device=model.device)
    stored = torch.empty(kv_layout(model).shape(tokens), dtype=model.dtype, device=model.device)
    hidden = model.embed(ids)
    for layer in range(model.layers):
        q, k, v = model.qkv(layer, hidden)
        stored[layer, 0], stored[layer, 1] = k, v
        if layer + 1 == model.layers:
            break  # what follows would only serve to predict the next token
        q, k = apply_rope(q, cos[here], sin[here]), apply_rope(k, cos[here], sin[here])
        if prefix_kv is not None:
            before = prefix_kv[layer].to(model.device)
            k = torch.cat([apply_rope(before[0], cos[:prefix], sin[:prefix]), k], dim=1)
            v = torch.cat([before[1], v], dim=1)
        hidden = model.finish(layer, hidden, causal.attend(q, k, v, model.scale))
    return stored
