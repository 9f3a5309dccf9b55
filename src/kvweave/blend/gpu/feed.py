"""Bringing cached KV to its places on a GPU: gathered and rotated by one kernel a layer.

KV that lies on the device is gathered when its layer's turn comes. KV that lies in page-locked
memory of the host comes over the bus on a stream of its own, a few layers ahead of the computation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch

from kvweave.blend.feed import read_layer
from kvweave.blend.gpu.recording import ScorePass
from kvweave.blend.gpu.workspace import Workspace
from kvweave.blend.layout import Placement, PromptLayout, to_device
from kvweave.blend.rope import apply_rope
from kvweave.blend.timing import Stopwatch
from kvweave.kv import PAGE_TOKENS
from kvweave.models import BlendableModel

#: Layers that come over the bus together, and are waited for together.
_LAYERS_PER_WAIT = 2


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
        workspace.begin()
        self._prompt = workspace.prompts
        self._others = _fill_sources(workspace, layout)
        for placement in self._others:
            for layer in range(model.layers):
                placement.lease.prefetch(layer)
        on_device = not self._others and all(
            placement.lease.tier == "gpu" for placement in layout.placements
        )
        self._tokens = layout.tokens
        self._held = workspace.layers_held
        self.keeps_layers = self._held == self._layers
        self._arrivals: dict[int, torch.cuda.Event | None] = {}
        """When a layer that is kept is there; None: before anything queued from now on."""
        self._together: list[range] = []
        """Layers that the computation takes in one go."""
        self._token_ids = layout.token_ids
        self.cos, self.sin = workspace.cos[: layout.tokens], workspace.sin[: layout.tokens]
        self.layers_loaded = 0
        self._clock = Stopwatch(model.device)
        self._timed: list[tuple[int, int, int]] = []
        """Layers brought in at once, and the marks before and after them."""
        self._stream = None if on_device or not overlap else torch.cuda.Stream(model.device)
        self._ready: list[torch.cuda.Event | None] = [None] * self._held
        self._free: list[torch.cuda.Event | None] = [None] * self._held
        self._issued = self._wanted = 0  # counted on over all passes
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(model.device))

    @cached_property
    def _slots(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return self._workspace.slots(self._tokens)  # when the device has something to do already

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.keeps_layers:
            if layer not in self._arrivals:
                self._fetch()
            self._await(layer)
            return self._slots[layer]
        if self._stream is None:
            slot = layer % len(self._slots)
            self._bring(range(layer, layer + 1), slot)
            return self._slots[slot]
        return self._next_in_ring(layer, self._stream)

    def recorded_scores(
        self, score_pass: ScorePass, most_rows: int, rows: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor | None:
        if self._others:
            return None
        recorded = self._workspace.scores(score_pass, most_rows)
        if recorded is None:
            return None
        # Before the host has started the pass, which takes a while: what it reads first, and what
        # is wanted first when it is done.
        first = recorded.layers.start
        self._bring(range(first, first + 1), first % self._held)
        if self.keeps_layers:
            if first > 0:
                self._bring(range(1), 0)
                self._arrived(range(1))
            self._arrived(recorded.layers)
        recorded.run(self._token_ids[rows], rows, bias)
        self.layers_loaded += len(recorded.layers) - 1
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())  # it reads slots that are filled
        return recorded.scores()

    def recorded_rows(self, rows: torch.Tensor, bias: torch.Tensor | None) -> bool:
        if self._others:
            return False
        pieces = sorted([*self._together, *self._missing()], key=lambda layers: layers.start)
        recorded = self._workspace.rows(tuple(pieces), self._token_ids[rows], rows, bias)
        self._fetch()
        if recorded is None:
            return False

        def await_all(layers: range) -> None:
            for layer in layers:
                self._await(layer)

        recorded.run(await_all)
        return True

    def is_current(self) -> bool:
        return self._prompt == self._workspace.prompts

    def load_seconds(self) -> float:
        """Layers that came in within a recorded pass, untimed, count as the timed ones do."""
        timed = sum(count for count, _, _ in self._timed)
        seconds = sum(self._clock.seconds(begin, end) for _, begin, end in self._timed)
        return seconds * self.layers_loaded / timed if timed else 0.0

    def stalled_seconds(self) -> float:
        return 0.0  # it waits in stream order, unseen from here

    # -- where all layers are held -----------------------------------------------------------------

    def _missing(self) -> list[range]:
        """Layers that are not there nor on their way, as they are brought in together.

        The same on a device, where none need be waited for: what is recorded for pieces of the
        layers then serves all tiers.
        """
        missing = [layer for layer in range(self._layers) if layer not in self._arrivals]
        return list(_runs(missing, _LAYERS_PER_WAIT))

    def _fetch(self) -> None:
        """Begin to bring in what is missing."""
        missing = self._missing()
        if not missing:
            return
        if self._stream is None:
            for run in _runs([layer for group in missing for layer in group], self._layers):
                self._bring(run, run.start)
            for group in missing:
                self._arrived(group)
            return
        # What is queued already has the bus to itself: beside a kernel that reads over it, each of
        # the many small ones of a selector takes several times as long.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            begin = self._clock.mark()
            for group in missing:
                self._bring(group, group.start, beside=True)
                arrival = torch.cuda.Event()
                arrival.record(self._stream)
                self._arrived(group, arrival)
                self._workspace.fetching = arrival
            self._timed.append((sum(map(len, missing)), begin, self._clock.mark()))

    def _arrived(self, layers: range, when: torch.cuda.Event | None = None) -> None:
        self._arrivals.update(dict.fromkeys(layers, when))
        self._together.append(layers)

    def _await(self, layer: int) -> None:
        """Let the current stream wait until `layer` is there."""
        arrival = self._arrivals[layer]
        if arrival is not None:
            torch.cuda.current_stream().wait_event(arrival)

    # -- where a few are ---------------------------------------------------------------------------

    def _next_in_ring(
        self, layer: int, stream: torch.cuda.Stream
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self._wanted % self._layers != layer:  # a pass begins anew, or begins within
            self._wanted = self._issued = self._issued + (layer - self._issued) % self._layers
        current = torch.cuda.current_stream()
        slots = len(self._slots)
        # The layer before this one is done with; its slot may be filled once the device got here.
        done = torch.cuda.Event()
        done.record(current)
        self._free[(self._wanted - 1) % slots] = done
        end_of_pass = self._wanted - self._wanted % self._layers + self._layers
        while self._issued < min(self._wanted + slots, end_of_pass):
            self._issue(self._issued % slots, self._issued % self._layers, stream)
            self._issued += 1
        slot = self._wanted % slots
        ready = self._ready[slot]
        assert ready is not None
        current.wait_event(ready)
        self._wanted += 1
        return self._slots[slot]

    def _issue(self, slot: int, layer: int, stream: torch.cuda.Stream) -> None:
        free = self._free[slot]
        with torch.cuda.stream(stream):
            if free is not None:
                stream.wait_event(free)
            begin = self._clock.mark()
            self._bring(range(layer, layer + 1), slot, beside=True)
            self._timed.append((1, begin, self._clock.mark()))
            ready = torch.cuda.Event()
            ready.record(stream)
        self._ready[slot] = self._workspace.fetching = ready

    # -- both --------------------------------------------------------------------------------------

    def _bring(self, layers: range, slot: int, *, beside: bool = False) -> None:
        """Layers to slots, from `slot` on; `beside`: while the device computes."""
        self._workspace.gather(layers, slot, beside=beside)
        for placement in self._others:
            span = slice(placement.start, placement.start + placement.tokens)
            for layer in layers:
                keys, values = self._slots[slot + layer - layers.start]
                read_layer(placement, layer, keys, values)
                keys[:, span] = apply_rope(keys[:, span], self.cos[span], self.sin[span])
        self.layers_loaded += len(layers)


def _runs(layers: Sequence[int], most: int) -> Iterator[range]:
    """Neighbours among ascending layers, at most `most` together."""
    start = 0
    for i in range(1, len(layers) + 1):
        if i == len(layers) or layers[i] != layers[i - 1] + 1 or i - start == most:
            yield range(layers[start], layers[i - 1] + 1)
            start = i


def _fill_sources(workspace: Workspace, layout: PromptLayout) -> list[Placement]:
    """Say where each position's KV lies; returns the leases that cannot be read in place."""
    index = {memory.data_ptr(): i for i, memory in enumerate(workspace.memories)}
    sources = np.full((len(index), layout.tokens), -1, dtype=np.int32)
    others: list[Placement] = []
    for placement in layout.placements:
        mapped = placement.lease.mapped()
        source = None if mapped is None else index.get(mapped.memory.data_ptr())
        if mapped is None or source is None:
            others.append(placement)
            continue
        stored = mapped.pages.numpy()[:, None] * PAGE_TOKENS + np.arange(PAGE_TOKENS)
        here = sources[source, placement.start : placement.start + placement.tokens]
        here[:] = stored.ravel()[: len(here)]
    workspace.set_sources(to_device(torch.from_numpy(sources), workspace.cos.device))
    return others
