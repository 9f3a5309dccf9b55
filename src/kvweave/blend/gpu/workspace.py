"""Device memory in which prompts are blended, kept from one to the next."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from kvweave.blend.gpu.memory import MOST_RECORDED_ROWS, held_layers
from kvweave.blend.gpu.recording import RecordedRows, RecordedScores, ScorePass
from kvweave.blend.gpu.rotation import gather_layers
from kvweave.kv import PAGE_TOKENS, KVFormat
from kvweave.models import BlendableModel

log = logging.getLogger(__name__)

#: Programs per layer and KV head that read over the bus: enough to fill it, and few enough to
#: leave multiprocessors to what computes beside them.
BUS_PROGRAMS = 8
BUS_PROGRAMS_BESIDE = 3
DEVICE_PROGRAMS = 256
#: A recording is for a number of rows; fewer are filled up to the next multiple of this.
ROWS_STEP = 64


class Workspace:
    """Scratch for the longest prompt, and recorded passes over it. One prompt at a time.

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
        self.model = model
        self._format = fmt
        self.dtype = model.dtype
        self._record = record
        # Tokens before heads, as engines keep them in pages; zeros, not garbage: positions that are
        # not filled yet are masked, and 0 * NaN is NaN.
        layer_bytes = 2 * max_tokens * model.kv_heads * model.head_dim * model.dtype.itemsize
        layers = held_layers(layer_bytes, model.layers, model.device)
        shape = (layers, 2, max_tokens, model.kv_heads, model.head_dim)
        scratch = torch.zeros(shape, dtype=model.dtype, device=model.device).transpose(2, 3)
        self._keys, self._values = scratch.unbind(1)
        self.cos, self.sin = model.rope_table(torch.arange(max_tokens, device=model.device))
        self._sources = torch.zeros(
            len(self.memories), max_tokens, dtype=torch.int32, device=model.device
        )
        self._tokens = torch.zeros(1, dtype=torch.int32, device=model.device)
        self.prompts = 0
        """How many prompts have used it: what lies in it is the last one's."""
        self.fetching: torch.cuda.Event | None = None
        """When the last layer has arrived that was brought in by another stream."""
        self._scores: dict[ScorePass, RecordedScores] = {}
        self._rows: dict[tuple[int, tuple[range, ...]], RecordedRows] = {}
        self._between: torch.Tensor | None = None
        # Only one recording runs at a time: what is scratch in one is scratch in all.
        self._pool = torch.cuda.graph_pool_handle() if record else None

    def begin(self) -> None:
        """Another prompt: what is still on its way for the last one, given up perhaps, may land."""
        self.prompts += 1
        if self.fetching is not None:
            torch.cuda.current_stream().wait_event(self.fetching)

    @property
    def layers_held(self) -> int:
        """How many layers' KV there is room for at a time."""
        return len(self._keys)

    def set_sources(self, sources: torch.Tensor) -> None:
        """Say which stored token of each memory goes to each position of the prompt.

        sources: int32 `[memories, tokens]`, -1 for none; see `gather_layers`.
        """
        tokens = sources.shape[1]
        self._sources[:, :tokens] = sources
        self._tokens.fill_(tokens)

    def slots(self, tokens: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values, `[kv_heads, tokens, head_dim]`, of each layer that is held at a time."""
        return [
            (k[:, :tokens], v[:, :tokens]) for k, v in zip(self._keys, self._values, strict=True)
        ]

    def between(self, rows: int) -> torch.Tensor:
        """Where recordings leave hidden states from one piece to the next, `[rows, hidden]`."""
        if self._between is None:
            token = torch.zeros(1, dtype=torch.int64, device=self.cos.device)
            width = self.model.embed(token).shape[1]
            self._between = self.cos.new_zeros(MOST_RECORDED_ROWS, width, dtype=self.dtype)
        return self._between[:rows]

    def gather(self, layers: range, slot: int, *, beside: bool = False) -> None:
        """Bring layers of what `set_sources` has said to its places, in slots from `slot` on.

        beside: the device computes meanwhile.
        """
        slots = slice(slot, slot + len(layers))
        bus_programs = BUS_PROGRAMS_BESIDE if beside else BUS_PROGRAMS
        for memory, source in zip(self.memories, self._sources, strict=True):
            gather_layers(
                memory[layers.start : layers.stop],
                source,
                self._tokens,
                self.cos,
                self.sin,
                self._keys[slots],
                self._values[slots],
                stored=self._format.precision.dtype,
                page_tokens=PAGE_TOKENS,
                key_bytes=self._format.key_bytes,
                programs=DEVICE_PROGRAMS if memory.is_cuda else bus_programs,
            )

    def scores(self, score_pass: ScorePass, rows: int) -> RecordedScores | None:
        """The graph of `score_pass`, to be run over up to `rows` rows; None where there is none."""
        if not self._record:
            return None
        recorded = self._scores.get(score_pass)
        if recorded is None:
            try:
                recorded = self._scores[score_pass] = RecordedScores(self, score_pass, rows)
            except RuntimeError as error:
                self._give_up(error)
                return None
        return recorded

    def rows(
        self,
        pieces: tuple[range, ...],
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        bias: torch.Tensor | None,
    ) -> RecordedRows | None:
        """The recording of these rows through all layers, ready to run; None where there is none.

        Args:
            pieces: all layers, in pieces between which it can be held up.
            token_ids, positions: int64 `[rows]`.
            bias: fp32 `[tokens]`, see `CausalRows`.
        """
        count = -(-len(positions) // ROWS_STEP) * ROWS_STEP
        if not self._record or count > MOST_RECORDED_ROWS:
            return None
        recorded = self._rows.get((count, pieces))
        if recorded is None:
            recorded = RecordedRows(self, count, pieces)
            recorded.set(token_ids, positions, bias)
            try:
                recorded.record(self._pool)
            except RuntimeError as error:
                self._give_up(error)
                return None
            self._rows[count, pieces] = recorded
        else:
            recorded.set(token_ids, positions, bias)
        return recorded

    def _give_up(self, error: RuntimeError) -> None:
        """Such as for an operator that cannot be recorded."""
        log.warning("passes are not recorded and take longer: %s", error)
        self._record = False
