"""The shape of chunk KV: as the model sees it, and as pages of bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

#: Tokens per page. All stored KV is cut into pages of this size, so memory never fragments; a
#: chunk wastes half a page on average.
PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Shape and dtype of the KV of one model.

    The KV of `tokens` tokens is `[layers, 2, kv_heads, tokens, head_dim]`; index 0 of the second
    axis are the keys **before RoPE**, index 1 the values. Keys are kept before RoPE because they
    can then be rotated once, to wherever the chunk lands, exactly as the model would have rotated
    them; and because they quantise better so (KVQuant, Hooper et al. 2024).
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    def shape(self, tokens: int) -> tuple[int, int, int, int, int]:
        """`(layers, 2, kv_heads, tokens, head_dim)`."""
        return (self.layers, 2, self.kv_heads, tokens, self.head_dim)

    def nbytes(self, tokens: int) -> int:
        """Bytes of the KV of `tokens` tokens over all layers, in `dtype`."""
        return math.prod(self.shape(tokens)) * self.dtype.itemsize


def page_count(tokens: int) -> int:
    """Pages that hold `tokens` tokens."""
    return -(-tokens // PAGE_TOKENS)
