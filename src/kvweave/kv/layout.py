"""The shape of stored KV: what one chunk's keys and values look like in bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class KVLayout:
    """Shape and dtype of the KV of one model.

    A chunk of `tokens` tokens is one contiguous tensor `[layers, 2, kv_heads, tokens, head_dim]`;
    index 0 of the second axis are the keys **before RoPE**, index 1 the values. Layer-major, so
    that layer i is one run of bytes, and its keys alone are one run too. Keys are kept before RoPE
    because they can then be rotated once, to wherever the chunk lands, exactly as the model would
    have rotated them.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    def shape(self, tokens: int) -> tuple[int, int, int, int, int]:
        """`(layers, 2, kv_heads, tokens, head_dim)`."""
        return (self.layers, 2, self.kv_heads, tokens, self.head_dim)

    def nbytes(self, tokens: int) -> int:
        """Bytes of the KV of `tokens` tokens over all layers."""
        return math.prod(self.shape(tokens)) * self.dtype.itemsize
