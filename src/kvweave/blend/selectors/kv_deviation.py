"""Select the tokens whose values deviate most (CacheBlend, Yao et al., EuroSys 2025, section 4.3).

Layer 0 is computed for every token of the prompt; at layer 1 each cached token's value vector is
compared with the one it has in this prompt, and the tokens with the largest squared difference
are chosen for all layers.
"""

from __future__ import annotations

import torch

from kvweave.blend.attention import full_causal_attention
from kvweave.blend.rope import apply_rope
from kvweave.blend.selectors.base import Selection, strongest


class KVDeviation:
    """Squared difference of the values at layer 1, summed over KV heads and dimensions."""

    def select(self, selection: Selection) -> torch.Tensor:
        model, feed = selection.model, selection.feed
        hidden = model.embed(selection.layout.token_ids)
        q, k, v = model.qkv(0, hidden)
        q, k = apply_rope(q, feed.cos, feed.sin), apply_rope(k, feed.cos, feed.sin)
        hidden = model.finish(0, hidden, full_causal_attention(q, k, v, model.scale))
        _, _, here = model.qkv(1, hidden)
        _, cached = feed.layer(1)
        deviation = (here.float() - cached.float()).square().sum(dim=(0, 2))
        deviation = model.combine_heads(deviation, "sum")
        selection.scores = deviation
        return strongest(deviation, selection.layout.candidates, selection.budget)
