"""Brings the cached KV of a prompt in, one layer at a time, ahead of the computation."""

from __future__ import annotations

import time

import torch

from kvweave.blend.layout import PromptLayout
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
        self._placements = layout.placements
        shape = (model.kv_heads, layout.tokens, model.head_dim)
        # Zeros, not garbage: positions that are not filled yet are masked, and 0 * NaN is NaN.
        self._keys = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self._values = torch.zeros_like(self._keys)
        self._runs = _runs(layout)
        positions = torch.arange(layout.tokens, device=model.device)
        self.cos, self.sin = model.rope_table(positions)
        self.load_seconds = 0.0
        """Time the computation stood still for loading and unpacking."""
        self.layers_loaded = 0
        for layer in range(model.layers):
            for placement in layout.placements:
                placement.lease.prefetch(layer)
        if not overlap:
            for layer in range(model.layers):
                self._load(layer)

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys (rotated) and values of `layer`, each `[kv_heads, tokens, head_dim]`.

        Positions that are not cached hold leftovers, to be overwritten or masked.
        """
        self._load(layer)
        for run in self._runs:
            self._keys[:, run] = apply_rope(self._keys[:, run], self.cos[run], self.sin[run])
        return self._keys, self._values

    def _load(self, layer: int) -> None:
        started = time.perf_counter()
        for placement in self._placements:
            span = slice(placement.start, placement.start + placement.tokens)
            placement.lease.read_layer(layer, self._keys[:, span], self._values[:, span])
        self.load_seconds += time.perf_counter() - started
        self.layers_loaded += 1


def _runs(layout: PromptLayout) -> list[slice]:
    """Stretches of the prompt that are covered by leases without a gap: rotated in one go."""
    runs: list[slice] = []
    for placement in sorted(layout.placements, key=lambda p: p.start):
        start, stop = placement.start, min(placement.start + placement.tokens, layout.tokens)
        if runs and runs[-1].stop == start:
            runs[-1] = slice(runs[-1].start, stop)
        else:
            runs.append(slice(start, stop))
    return runs
