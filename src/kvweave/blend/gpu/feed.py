"""Bringing cached KV to its places on a GPU: gathered and rotated by one kernel a layer.

KV that lies on the device is gathered when its layer's turn comes. KV that lies in page-locked
memory of the host comes over the bus on a stream of its own, a few layers ahead of the computation.
"""

from __future__ import annotations

import torch

from kvweave.blend.feed import read_layer
from kvweave.blend.gpu.workspace import ScorePass, Workspace
from kvweave.blend.layout import Placement, PromptLayout, to_device
from kvweave.blend.rope import apply_rope
from kvweave.blend.timing import Stopwatch
from kvweave.kv import PAGE_TOKENS
from kvweave.models import BlendableModel


class DeviceFeed:
    """See `LayerFeed`. Nothing here waits for the device; what it queued is in stream order."""

    def __init__(
        self,
        model: BlendableModel,
        layout: PromptLayout,
        workspace: Workspace,
        *,
        overlap: bool,
    ) -> None:
        self._layers = model.layers
        self._workspace = workspace
        workspace.prompts += 1
        self._prompt = workspace.prompts
        self._others = _fill_sources(workspace, layout)
        for placement in self._others:
            for layer in range(model.layers):
                placement.lease.prefetch(layer)
        on_device = not self._others and all(
            placement.lease.tier == "gpu" for placement in layout.placements
        )
        self._slots = workspace.slots(layout.tokens)
        # Where all layers are held, a layer that was brought in once stays.
        self._all_held = len(self._slots) == self._layers
        self._here: set[int] = set()
        self._token_ids = layout.token_ids
        self.cos, self.sin = workspace.cos[: layout.tokens], workspace.sin[: layout.tokens]
        self.layers_loaded = 0
        self._clock = Stopwatch(model.device)
        # First layer and the one after the last, and the marks before and after them.
        self._passes: list[tuple[int, int, int, int]] = []
        self._began: tuple[int, int] | None = None
        self._stream = None if on_device or not overlap else torch.cuda.Stream(model.device)
        self._ready: list[torch.cuda.Event | None] = [None] * len(self._slots)
        self._free: list[torch.cuda.Event | None] = [None] * len(self._slots)
        self._issued = self._wanted = 0  # counted on over all passes
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(model.device))

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        if layer in self._here:
            return self._slots[layer]
        if self._stream is None:
            pair = self._slots[layer % len(self._slots)]
            self._bring(layer, *pair)
            if self._all_held:
                self._here.add(layer)
            return pair
        if self._wanted % self._layers != layer:  # a pass begins anew, or begins within
            self._wanted = self._issued = self._issued + (layer - self._issued) % self._layers
        current = torch.cuda.current_stream()
        slots = len(self._slots)
        # The layer before this one is done with; its slot may be filled once the device got here.
        done = torch.cuda.Event()
        done.record(current)
        self._free[(self._wanted - 1) % slots] = done
        self._issue_until(min(self._wanted + slots, self._end_of_pass() + 1))
        slot = self._wanted % slots
        ready = self._ready[slot]
        assert ready is not None
        current.wait_event(ready)
        self._wanted += 1
        if self._all_held:
            self._here.add(layer)
        return self._slots[slot]

    def recorded_scores(
        self, score_pass: ScorePass, most_rows: int, rows: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor | None:
        if self._others:
            return None
        found = self._workspace.scores(score_pass, most_rows, self._token_ids[rows], rows, bias)
        if found is None:
            return None
        scores, layers = found
        self.layers_loaded += layers
        if self._stream is not None:
            # The pass reads the slots that are filled next.
            self._stream.wait_stream(torch.cuda.current_stream())
        if self._all_held:
            self._here.update(range(layers))
            if self._stream is not None:
                # The rest comes in while the first layers compute.
                self._wanted = self._issued = layers
                self._issue_until(self._layers)
        return scores

    def recorded_rows(self, rows: torch.Tensor, bias: torch.Tensor | None) -> bool:
        # Layers that stay are there from the first on. Where none is and all must come over the
        # bus, computing beside that is worth more than a recording.
        brought = next((i for i in range(self._layers) if i not in self._here), self._layers)
        if self._others or not self._all_held or (self._stream is not None and not brought):
            return False
        if not brought:
            self._bring_rest()
        split = brought or self._layers
        recorded = self._workspace.rows(split, self._token_ids[rows], rows, bias)
        if recorded is None:
            return False
        recorded.begin()
        self._bring_rest()
        recorded.finish()
        return True

    def is_current(self) -> bool:
        return self._prompt == self._workspace.prompts

    def load_seconds(self) -> float:
        """Layers that came in within a recorded pass, untimed, count as the timed ones do."""
        timed = sum(last - first for first, last, _, _ in self._passes)
        seconds = sum(self._clock.seconds(begin, end) for _, _, begin, end in self._passes)
        return seconds * self.layers_loaded / timed if timed else 0.0

    def stalled_seconds(self) -> float:
        return 0.0  # it waits in stream order, unseen from here

    def _end_of_pass(self) -> int:
        return self._wanted - self._wanted % self._layers + self._layers - 1

    def _issue_until(self, stop: int) -> None:
        while self._issued < stop:
            self._issue(self._issued % len(self._slots), self._issued % self._layers)
            self._issued += 1

    def _bring_rest(self) -> None:
        """Have all layers here for what is queued next in the current stream."""
        if self._stream is not None:
            self._issue_until(self._layers)
            torch.cuda.current_stream().wait_stream(self._stream)
        for layer in range(self._layers):
            if layer not in self._here and self._stream is None:
                self._bring(layer, *self._slots[layer])
        self._here.update(range(self._layers))

    def _issue(self, slot: int, layer: int) -> None:
        stream = self._stream
        assert stream is not None
        free = self._free[slot]
        with torch.cuda.stream(stream):
            if free is not None:
                stream.wait_event(free)
            if self._began is None or layer == 0:
                self._began = layer, self._clock.mark()
            self._bring(layer, *self._slots[slot])
            if layer + 1 == self._layers:
                first, mark = self._began
                self._passes.append((first, self._layers, mark, self._clock.mark()))
                self._began = None
            ready = torch.cuda.Event()
            ready.record(stream)
        self._ready[slot] = ready

    def _bring(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._workspace.gather(layer, keys, values)
        for placement in self._others:
            read_layer(placement, layer, keys, values)
            span = slice(placement.start, placement.start + placement.tokens)
            keys[:, span] = apply_rope(keys[:, span], self.cos[span], self.sin[span])
        self.layers_loaded += 1


def _fill_sources(workspace: Workspace, layout: PromptLayout) -> list[Placement]:
    """Say where each position's KV lies; returns the leases that cannot be read in place."""
    index = {memory.data_ptr(): i for i, memory in enumerate(workspace.memories)}
    sources = [
        torch.full((workspace.max_tokens,), -1, dtype=torch.int32) for _ in workspace.memories
    ]
    others: list[Placement] = []
    for placement in layout.placements:
        mapped = placement.lease.mapped()
        source = None if mapped is None else index.get(mapped.memory.data_ptr())
        if mapped is None or source is None:
            others.append(placement)
            continue
        stored = mapped.pages[:, None] * PAGE_TOKENS + torch.arange(PAGE_TOKENS)
        stop = min(placement.start + placement.tokens, layout.tokens)
        here = sources[source][placement.start : stop]
        here.copy_(stored.flatten()[: len(here)])
    for static, tokens in zip(workspace.sources, sources, strict=True):
        static.copy_(to_device(tokens, static.device))
    return others
