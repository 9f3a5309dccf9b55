"""Brings the cached KV of a prompt in, one layer at a time, ahead of the computation."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

import torch

from kvweave.blend.layout import Placement, PromptLayout
from kvweave.blend.rope import apply_rope
from kvweave.models import BlendableModel

if TYPE_CHECKING:
    from kvweave.blend.gpu.recording import ScorePass
    from kvweave.blend.gpu.workspace import Workspace


class LayerFeed(Protocol):
    """The cached KV of one prompt, layer by layer: gathered from its leases and rotated.

    A layer may be written to, and layers may be asked for again.

    Attributes:
        keeps_layers: whether a layer stays what it is, with what was written to it; else it is
            valid until the next is asked for.
        cos, sin: fp32 `[tokens, head_dim]`, the angles of all positions.
        layers_loaded: how many layers have been brought in, over all passes.
    """

    keeps_layers: bool
    cos: torch.Tensor
    sin: torch.Tensor
    layers_loaded: int

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys (rotated) and values of `layer`, each `[kv_heads, tokens, head_dim]`.

        Positions that are not cached hold leftovers, to be overwritten or masked.

        Raises:
            ChunkUnreadable: a lease turned out to be unreadable.
        """

    def recorded_scores(
        self, score_pass: ScorePass, most_rows: int, rows: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor | None:
        """What `score_pass` gives for these rows, from a recording; None: run it yourself."""

    def recorded_rows(self, rows: torch.Tensor, bias: torch.Tensor | None) -> bool:
        """Run these rows through all layers, from a recording; False: run them yourself.

        Only where layers are kept: the rows' keys and values then are in those that `layer` gives.
        """

    def is_current(self) -> bool:
        """Whether what was brought in is still there: scratch may have gone to another prompt."""

    def load_seconds(self) -> float:
        """How long loading took so far; waits for it where it runs beside the computation."""

    def stalled_seconds(self) -> float:
        """How long the computation stood still for loading so far."""


def make_feed(
    model: BlendableModel,
    layout: PromptLayout,
    workspace: Workspace | None = None,
    *,
    overlap: bool,
) -> LayerFeed:
    """The feed for this prompt on the model's device.

    With `overlap`, layers are brought in ahead of the one that computes.

    Raises:
        ChunkUnreadable: as `LayerFeed.layer`.
    """
    if workspace is not None:
        from kvweave.blend.gpu.feed import DeviceFeed

        return DeviceFeed(model, layout, workspace, overlap=overlap)
    return HostFeed(model, layout, overlap=overlap)


class HostFeed:
    """Copies from leases with torch's operators; see `LayerFeed`.

    With `overlap`, all layers of all leases are requested at once, in the order in which they will
    be needed, and layer i + 1 arrives while layer i computes. Without, everything is brought in
    before the first layer is given out. One scratch pair of keys and values serves every layer.
    """

    keeps_layers = False

    def __init__(self, model: BlendableModel, layout: PromptLayout, *, overlap: bool) -> None:
        self._placements = layout.placements
        shape = (model.kv_heads, layout.tokens, model.head_dim)
        # Zeros, not garbage: positions that are not filled yet are masked, and 0 * NaN is NaN.
        self._keys = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self._values = torch.zeros_like(self._keys)
        self._runs = _runs(layout)
        positions = torch.arange(layout.tokens, device=model.device)
        self.cos, self.sin = model.rope_table(positions)
        self._load_seconds = 0.0
        self.layers_loaded = 0
        for layer in range(model.layers):
            for placement in layout.placements:
                placement.lease.prefetch(layer)
        if not overlap:
            for layer in range(model.layers):
                self._load(layer)

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        self._load(layer)
        for run in self._runs:
            self._keys[:, run] = apply_rope(self._keys[:, run], self.cos[run], self.sin[run])
        return self._keys, self._values

    def recorded_scores(
        self, score_pass: ScorePass, most_rows: int, rows: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor | None:
        return None

    def recorded_rows(self, rows: torch.Tensor, bias: torch.Tensor | None) -> bool:
        return False

    def is_current(self) -> bool:
        return True

    def load_seconds(self) -> float:
        return self._load_seconds

    def stalled_seconds(self) -> float:
        return self._load_seconds

    def _load(self, layer: int) -> None:
        started = time.perf_counter()
        for placement in self._placements:
            read_layer(placement, layer, self._keys, self._values)
        self._load_seconds += time.perf_counter() - started
        self.layers_loaded += 1


def read_layer(placement: Placement, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Copy one layer of a lease to its place; keys are not rotated yet."""
    span = slice(placement.start, placement.start + placement.tokens)
    placement.lease.read_layer(layer, keys[:, span], values[:, span])


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
