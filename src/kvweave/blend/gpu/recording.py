"""Passes over a workspace, recorded as CUDA graphs.

A pass of few rows starts more kernels than the host can issue in the time they take; recorded once,
it costs one call.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from kvweave.blend.attention import CausalRows
from kvweave.blend.rope import RowPositions
from kvweave.blend.rows import run_layer
from kvweave.models import BlendableModel

if TYPE_CHECKING:
    from kvweave.blend.gpu.workspace import Workspace

#: Layers that a recorded pass brings in ahead of the one that computes.
LAYERS_AHEAD = 3

LayerKV = Callable[[int], tuple[torch.Tensor, torch.Tensor]]
Result = TypeVar("Result")
ScorePass = Callable[
    [BlendableModel, torch.Tensor, RowPositions, CausalRows, LayerKV, int], torch.Tensor
]
"""`(model, row ids, row positions, causal rows, layer KV, tokens)` -> scores fp32 `[tokens]`."""


class _Inputs:
    """What a recording reads, where it reads it: rows, the last of which fills up what is free."""

    def __init__(self, workspace: Workspace, rows: int) -> None:
        self._workspace = workspace
        device = workspace.cos.device
        self.ids = torch.zeros(rows, dtype=torch.int64, device=device)
        self._positions = torch.zeros_like(self.ids)
        self._bias = torch.zeros(workspace.max_tokens, dtype=torch.float32, device=device)

    def set(
        self, token_ids: torch.Tensor, positions: torch.Tensor, bias: torch.Tensor | None
    ) -> None:
        count = len(positions)
        for static, given in ((self.ids, token_ids), (self._positions, positions)):
            static[:count] = given
            static[count:] = given[-1]
        # Keys after the last row are never seen.
        if bias is None:
            self._bias.zero_()
        else:
            self._bias[: len(bias)] = bias

    def placed(self) -> tuple[RowPositions, CausalRows]:
        """To be called within the recording."""
        workspace = self._workspace
        return (
            RowPositions(self._positions, workspace.cos, workspace.sin),
            CausalRows(self._positions, workspace.dtype, self._bias),
        )


class RecordedRows:
    """Rows through all layers, one graph for each piece of them.

    Before a piece, its layers can be waited for.
    """

    def __init__(self, workspace: Workspace, rows: int, pieces: Sequence[range]) -> None:
        self._workspace = workspace
        self._inputs = _Inputs(workspace, rows)
        self._pieces = tuple(pieces)
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def set(
        self, token_ids: torch.Tensor, positions: torch.Tensor, bias: torch.Tensor | None
    ) -> None:
        """The rows to be run; arguments as for `Workspace.rows`."""
        self._inputs.set(token_ids, positions, bias)

    def record(self, pool: Any) -> None:
        """Record all pieces, over rows that have been set. Leaves the layers written to.

        Raises:
            RuntimeError: that cannot be done.
        """
        model, inputs = self._workspace.model, self._inputs
        slots = self._workspace.slots(self._workspace.max_tokens)
        between = self._workspace.between(len(inputs.ids))
        placed: tuple[RowPositions, CausalRows] | None = None

        def run(layers: range) -> None:
            nonlocal placed
            if layers.start == 0:
                placed = inputs.placed()
            assert placed is not None
            hidden = between if layers.start else model.embed(inputs.ids)
            for layer in layers:
                hidden = run_layer(model, layer, hidden, *placed, *slots[layer])
            between.copy_(hidden)

        def run_all() -> None:
            for layers in self._pieces:
                run(layers)

        _run_beside(run_all)
        self._graphs = [_record(partial(run, layers), pool)[0] for layers in self._pieces]
        self._kept = placed  # all graphs read what the first one works out

    def run(self, before: Callable[[range], None]) -> None:
        """Run all pieces; `before` is called before each with its layers."""
        for layers, graph in zip(self._pieces, self._graphs, strict=True):
            before(layers)
            graph.replay()


class RecordedScores:
    """A score pass as one graph, which also brings in the layers that it asks for.

    The first of these must be on its way in the current stream when it is run.

    Attributes:
        layers: those that it asks for.
    """

    def __init__(self, workspace: Workspace, score_pass: ScorePass, rows: int) -> None:
        model = workspace.model
        self._inputs = inputs = _Inputs(workspace, rows)
        loading = torch.cuda.Stream(workspace.cos.device)

        def run(layers: range, *, first_is_there: bool) -> tuple[torch.Tensor, range]:
            placed, causal = inputs.placed()
            feed = _Prefetch(workspace, loading, layers, first_is_there=first_is_there)
            scores = score_pass(model, inputs.ids, placed, causal, feed.layer, workspace.max_tokens)
            return scores, feed.join()

        # The first run tells which layers there is any use in.
        _, self.layers = _run_beside(partial(run, range(model.layers), first_is_there=False))
        self._graph, (self._scores, _) = _record(partial(run, self.layers, first_is_there=True))
        self._tokens = 0

    def run(self, token_ids: torch.Tensor, positions: torch.Tensor, bias: torch.Tensor) -> None:
        """Run it for a question.

        Args:
            token_ids, positions: int64, at most as many as it was recorded for; for fewer, the last
                is repeated.
            bias: fp32 `[tokens]`, see `CausalRows`.
        """
        self._inputs.set(token_ids, positions, bias)
        self._graph.replay()
        self._tokens = len(bias)

    def scores(self) -> torch.Tensor:
        """fp32 `[tokens]`, of the last run."""
        return self._scores[: self._tokens]


def _run_beside(run: Callable[[], Result]) -> Result:
    """Before a recording: kernels are compiled and libraries set up outside of it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = run()
    torch.cuda.synchronize()
    return result


def _record(run: Callable[[], Result], pool: Any = None) -> tuple[torch.cuda.CUDAGraph, Result]:
    graph = torch.cuda.CUDAGraph()
    collects = gc.isenabled()
    gc.disable()  # what is freed in here, another recording say, would spoil this one
    try:
        # Other threads may use the device meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = run()
    finally:
        if collects:
            gc.enable()
    return graph, result


class _Prefetch:
    """These layers in order, gathered on a stream beside the one that computes.

    The first that is asked for is the first that is gathered, unless it is there already.
    """

    def __init__(
        self,
        workspace: Workspace,
        stream: torch.cuda.Stream,
        layers: range,
        *,
        first_is_there: bool,
    ) -> None:
        self._workspace = workspace
        self._stream = stream
        self._slots = workspace.slots(workspace.max_tokens)
        self._layers = layers
        self._asked: list[int] = []
        self._ahead = min(LAYERS_AHEAD, len(self._slots) - 1)
        self._issued = layers.start if first_is_there else -1
        self._ready: dict[int, torch.cuda.Event] = {}
        stream.wait_stream(torch.cuda.current_stream())

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        current = torch.cuda.current_stream()
        # The layer before this one is done with: its slot is the next to be filled.
        done = torch.cuda.Event()
        done.record(current)
        first = max(self._issued + 1, layer)
        for coming in range(first, min(layer + self._ahead + 1, self._layers.stop)):
            with torch.cuda.stream(self._stream):
                if coming >= len(self._slots):
                    self._stream.wait_event(done)
                self._workspace.gather(range(coming, coming + 1), coming % len(self._slots))
                ready = torch.cuda.Event()
                ready.record(self._stream)
            self._ready[coming] = ready
            self._issued = coming
        if layer in self._ready:
            current.wait_event(self._ready.pop(layer))
        self._asked.append(layer)
        return self._slots[layer % len(self._slots)]

    def join(self) -> range:
        """Wait for what is still being brought in; returns which layers were asked for."""
        torch.cuda.current_stream().wait_stream(self._stream)
        return range(self._asked[0], self._asked[-1] + 1) if self._asked else range(0)
