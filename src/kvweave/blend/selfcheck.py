"""A check that a model's layers are understood: computed one by one, they give its own logits."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kvweave.blend.attention import full_causal_attention
from kvweave.blend.rope import apply_rope
from kvweave.models import BlendableModel, UnsupportedModel

#: Largest relative difference of the logits (norms): rounding in fp32, and in narrower types.
_TOLERANCE = {torch.float32: 1e-3}
_NARROW_TOLERANCE = 0.05
_TOKENS = 32


@torch.no_grad()
def run_layers(
    model: BlendableModel,
    token_ids: torch.Tensor,
    on_kv: Callable[[int, torch.Tensor, torch.Tensor], None] | None = None,
) -> torch.Tensor:
    """A plain full prefill, layer by layer: hidden states `[tokens, hidden]` after the last.

    on_kv: gets each layer's number, keys (rotated) and values, `[kv_heads, tokens, head_dim]`.
    """
    positions = torch.arange(len(token_ids), device=model.device)
    cos, sin = model.rope_table(positions)
    hidden = model.embed(token_ids)
    for layer in range(model.layers):
        q, k, v = model.qkv(layer, hidden)
        q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        if on_kv is not None:
            on_kv(layer, k, v)
        hidden = model.finish(layer, hidden, full_causal_attention(q, k, v, model.scale))
    return hidden


@torch.no_grad()
def check_layers(model: BlendableModel, reference: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Compute a short prompt layer by layer and compare with what `reference` says.

    Args:
        reference: the model as its authors wrote it: `[tokens]` ids -> logits `[tokens, vocab]`.

    Raises:
        UnsupportedModel: the two differ, so the layers are not what we take them for.
    """
    ids = torch.arange(1, _TOKENS + 1, device=model.device) % model.vocab_size
    hidden = run_layers(model, ids)
    expected = reference(ids).float()
    error = float((model.logits(hidden).float() - expected).norm() / expected.norm())
    tolerance = _TOLERANCE.get(model.dtype, _NARROW_TOLERANCE)
    if not error < tolerance:  # also when it is NaN
        raise UnsupportedModel(
            f"self-check failed: computing this model layer by layer gives logits that differ by "
            f"{error:.2g} (relative), more than {tolerance:g}; its layers are not understood, "
            "so it is not served"
        )
