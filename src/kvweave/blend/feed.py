"""Brings the cached KV of a prompt in, one layer at a time, ahead of the computation."""

from __future__ import annotations

import time

import torch

from kvweave.blend.layout import Placement, PromptLayout
from kvweave.blend.rope import apply_rope
from kvweave.models import BlendableModel


class LayerFeed:
    """The cached KV of one prompt, layer by layer: gathered from its leases and rotated.

    With `overlap`, all layers of all leases are requested at once, in the order in which they will
    be needed, and layer i + 1 arrives while layer i computes. Without, everything is brought in
    before the first layer is given out.

    One scratch pair of keys and values serves every layer, so a layer is valid until the next is
    asked for. It may be written to, and layers may be asked for again.

    Raises:
        ChunkUnreadable: from the constructor or `layer`, if a lease turns out to be unreadable.
    """

    def __init__(self, model: BlendableModel, layout: PromptLayout, *, overlap: bool) -> None:
        self._layout = layout
        self._device = model.device
        shape = (model.kv_heads, layout.tokens, model.head_dim)
        # Zeros, not garbage: positions that are not filled yet are masked, and 0 * NaN is NaN.
        self._keys = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self._values = torch.zeros_like(self._keys)
        positions = torch.arange(layout.tokens, device=model.device)
        self.cos, self.sin = model.rope_table(positions)
        self.wait_seconds = 0.0
        """Time the computation stood still for loads."""
        for layer in range(model.layers):
            for placement in layout.placements:
                placement.lease.prefetch(layer)
        if not overlap:
            for layer in range(model.layers):
                self._bring(layer)

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys (rotated) and values of `layer`, each `[kv_heads, tokens, head_dim]`.

        Positions that are not cached hold leftovers, to be overwritten or masked.
        """
        for placement, kv in self._bring(layer):
            span = slice(placement.start, placement.start + kv.shape[2])
            kv = kv.to(self._device, non_blocking=True)
            self._keys[:, span] = apply_rope(kv[0], self.cos[span], self.sin[span])
            self._values[:, span] = kv[1]
        return self._keys, self._values

    def _bring(self, layer: int) -> list[tuple[Placement, torch.Tensor]]:
        started = time.perf_counter()
        arrived = [(p, p.lease.layer(layer)) for p in self._layout.placements]
        self.wait_seconds += time.perf_counter() - started
        return arrived
