"""Device memory in which prompts are blended, kept from one to the next, and graphs over it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch

from kvweave.blend.attention import CausalRows
from kvweave.blend.gpu.memory import held_layers
from kvweave.blend.gpu.rotation import gather_layer
from kvweave.blend.rope import RowPositions
from kvweave.kv import PAGE_TOKENS, KVFormat
from kvweave.models import BlendableModel

log = logging.getLogger(__name__)

#: Programs per KV head that read over the bus: enough to fill it, few enough to compute beside.
BUS_PROGRAMS = 4
DEVICE_PROGRAMS = 256
#: Layers that a recorded pass brings in ahead of the one that computes: what it brings in beyond
#: its last layer, it must wait for.
LAYERS_AHEAD = 3

LayerKV = Callable[[int], tuple[torch.Tensor, torch.Tensor]]
ScorePass = Callable[
    [BlendableModel, torch.Tensor, RowPositions, CausalRows, LayerKV, int], torch.Tensor
]
"""`(model, row ids, row positions, causal rows, layer KV, tokens)` -> scores fp32 `[tokens]`."""


class Workspace:
    """Scratch for the longest prompt, and recorded passes over it. One prompt at a time.

    A pass of few rows starts more kernels than the host can issue in the time they take; recorded
    once as a CUDA graph, it costs one call.

    Args:
        memories: what chunk KV may be read from in place: uint8 `[layers, pages, page_bytes]`.
        record: whether graphs may be used: not where ranks exchange data during a pass.
    """

    def __init__(
        self,
        model: BlendableModel,
        fmt: KVFormat,
        memories: Sequence[torch.Tensor],
        max_tokens: int,
        *,
        record: bool,
    ) -> None:
        self.max_tokens = max_tokens
        self.memories = tuple(memories)
        self.value_offset = fmt.key_bytes // model.dtype.itemsize
        self._model = model
        self._record = record
        # Tokens before heads, as engines keep them in pages; zeros, not garbage: positions that are
        # not filled yet are masked, and 0 * NaN is NaN.
        layer_bytes = 2 * max_tokens * model.kv_heads * model.head_dim * model.dtype.itemsize
        layers = held_layers(layer_bytes, model.layers, model.device)
        shape = (layers, 2, max_tokens, model.kv_heads, model.head_dim)
        scratch = torch.zeros(shape, dtype=model.dtype, device=model.device).transpose(2, 3)
        self._slots = [(pair[0], pair[1]) for pair in scratch]
        self.cos, self.sin = model.rope_table(torch.arange(max_tokens, device=model.device))
        none = torch.full((max_tokens,), -1, dtype=torch.int32, device=model.device)
        self.sources = tuple(none.clone() for _ in self.memories)
        """int32 `[max_tokens]` each: which stored token of the memory goes to each position."""
        self.prompts = 0
        """How many prompts have used it: what lies in it is the last one's."""
        self._recorded: dict[ScorePass, _RecordedPass] = {}

    def slots(self, tokens: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values, `[kv_heads, tokens, head_dim]`, of each layer that is held at a time."""
        return [(keys[:, :tokens], values[:, :tokens]) for keys, values in self._slots]

    def gather(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Bring one layer of what `sources` says to its places."""
        for memory, source in zip(self.memories, self.sources, strict=True):
            gather_layer(
                memory[layer].view(self._model.dtype),
                source,
                self.cos,
                self.sin,
                keys,
                values,
                page_tokens=PAGE_TOKENS,
                value_offset=self.value_offset,
                programs=DEVICE_PROGRAMS if memory.is_cuda else BUS_PROGRAMS,
            )

    def scores(
        self,
        score_pass: ScorePass,
        rows: int,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        visible: torch.Tensor,
    ) -> tuple[torch.Tensor, int] | None:
        """What `score_pass` says of this prompt, from its graph; None where there is none.

        Also how many layers, from the first, the pass has brought in.

        Args:
            rows: rows that the graph has; shorter questions repeat their last.
            token_ids, positions: int64, at most `rows`.
            visible: bool `[tokens]`.
        """
        if not self._record:
            return None
        recorded = self._recorded.get(score_pass)
        if recorded is None:
            try:
                recorded = self._recorded[score_pass] = _RecordedPass(self, score_pass, rows)
            except RuntimeError as error:  # such as an operator that cannot be recorded
                log.warning("short passes are not recorded and take longer: %s", error)
                self._record = False
                return None
        return recorded.run(token_ids, positions, visible)


class _RecordedPass:
    def __init__(self, workspace: Workspace, score_pass: ScorePass, rows: int) -> None:
        model = workspace._model
        self._workspace = workspace
        self._ids = torch.zeros(rows, dtype=torch.int64, device=model.device)
        self._positions = torch.zeros_like(self._ids)
        self._visible = torch.zeros(workspace.max_tokens, dtype=torch.bool, device=model.device)
        self._loading = torch.cuda.Stream(model.device)
        self._layers = 0

        def run() -> torch.Tensor:
            placed = RowPositions(self._positions, workspace.cos, workspace.sin)
            causal = CausalRows(self._positions, model.dtype, self._visible)
            feed = _Prefetch(workspace, self._loading)
            scores = score_pass(model, self._ids, placed, causal, feed.layer, workspace.max_tokens)
            # A pass may end early, but a recording must not end with gathering under way.
            self._layers = feed.join()
            return scores

        # Once as usual first: kernels are compiled and libraries set up outside of the recording.
        warm_up = torch.cuda.Stream(model.device)
        warm_up.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm_up):
            run()
        torch.cuda.synchronize(model.device)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._scores = run()

    def run(
        self, token_ids: torch.Tensor, positions: torch.Tensor, visible: torch.Tensor
    ) -> tuple[torch.Tensor, int]:
        count, tokens = len(positions), len(visible)
        for static, given in ((self._ids, token_ids), (self._positions, positions)):
            static[:count] = given
            static[count:] = given[-1]
        self._visible[:tokens] = visible
        self._visible[tokens:] = False
        self._graph.replay()
        return self._scores[:tokens], self._layers


class _Prefetch:
    """Layers in order, gathered on a stream beside the one that computes."""

    def __init__(self, workspace: Workspace, stream: torch.cuda.Stream) -> None:
        self._workspace = workspace
        self._stream = stream
        self._slots = workspace.slots(workspace.max_tokens)
        self._layers = workspace.memories[0].shape[0] if workspace.memories else 0
        self._ahead = min(LAYERS_AHEAD, len(self._slots) - 1)
        self._issued = 0
        self._ready: dict[int, torch.cuda.Event] = {}
        stream.wait_stream(torch.cuda.current_stream())

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        current = torch.cuda.current_stream()
        # The layer before this one is done with: its slot is the next to be filled.
        done = torch.cuda.Event()
        done.record(current)
        while self._issued <= min(layer + self._ahead, self._layers - 1):
            with torch.cuda.stream(self._stream):
                if self._issued >= len(self._slots):
                    self._stream.wait_event(done)
                self._workspace.gather(self._issued, *self._slots[self._issued % len(self._slots)])
                ready = torch.cuda.Event()
                ready.record(self._stream)
            self._ready[self._issued] = ready
            self._issued += 1
        current.wait_event(self._ready.pop(layer))
        return self._slots[layer % len(self._slots)]

    def join(self) -> int:
        """Wait for what is still being brought in; returns how many layers have been."""
        for ready in self._ready.values():
            torch.cuda.current_stream().wait_event(ready)
        return self._issued
