"""Device memory in which prompts are blended, kept from one to the next."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from kvweave.blend.gpu.memory import MOST_RECORDED_ROWS, held_layers
from kvweave.blend.gpu.recording import RecordedRows, RecordedScores, ScorePass
from kvweave.blend.gpu.rotation import gather_layer
from kvweave.kv import PAGE_TOKENS, KVFormat
from kvweave.models import BlendableModel

log = logging.getLogger(__name__)

#: Programs per KV head that read over the bus: enough to fill it, few enough to compute beside.
BUS_PROGRAMS = 8
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
        self._slots = [(pair[0], pair[1]) for pair in scratch]
        self.cos, self.sin = model.rope_table(torch.arange(max_tokens, device=model.device))
        self._sources = torch.zeros(
            len(self.memories), max_tokens, dtype=torch.int32, device=model.device
        )
        self._tokens = torch.zeros(1, dtype=torch.int32, device=model.device)
        self.prompts = 0
        """How many prompts have used it: what lies in it is the last one's."""
        self._scores: dict[ScorePass, RecordedScores] = {}
        self._rows: dict[tuple[int, tuple[range, ...]], RecordedRows] = {}
        self._between: torch.Tensor | None = None
        # Only one recording runs at a time: what is scratch in one is scratch in all.
        self._pool = torch.cuda.graph_pool_handle() if record else None

    @property
    def layers_held(self) -> int:
        """How many layers' KV there is room for at a time."""
        return len(self._slots)

    def set_sources(self, sources: torch.Tensor) -> None:
        """Say which stored token of each memory goes to each position of the prompt.

        sources: int32 `[memories, tokens]`, -1 for none; see `gather_layer`.
        """
        tokens = sources.shape[1]
        self._sources[:, :tokens] = sources
        self._tokens.fill_(tokens)

    def slots(self, tokens: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Keys and values, `[kv_heads, tokens, head_dim]`, of each layer that is held at a time."""
        return [(keys[:, :tokens], values[:, :tokens]) for keys, values in self._slots]

    def between(self, rows: int) -> torch.Tensor:
        """Where recordings leave hidden states from one piece to the next, `[rows, hidden]`."""
        if self._between is None:
            token = torch.zeros(1, dtype=torch.int64, device=self.cos.device)
            width = self.model.embed(token).shape[1]
            self._between = self.cos.new_zeros(MOST_RECORDED_ROWS, width, dtype=self.dtype)
        return self._between[:rows]

    def gather(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Bring one layer of what `set_sources` has said to its places."""
        for memory, source in zip(self.memories, self._sources, strict=True):
            gather_layer(
                memory[layer],
                source,
                self._tokens,
                self.cos,
                self.sin,
                keys,
                values,
                stored=self._format.precision.dtype,
                page_tokens=PAGE_TOKENS,
                key_bytes=self._format.key_bytes,
                programs=DEVICE_PROGRAMS if memory.is_cuda else BUS_PROGRAMS,
            )

    def scores(
        self,
        score_pass: ScorePass,
        rows: int,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        bias: torch.Tensor,
    ) -> tuple[torch.Tensor, range] | None:
        """What `score_pass` says of this prompt, from its graph; None where there is none.

        Also which layers the pass has brought in.

        Args:
            rows: rows that the graph has; shorter questions repeat their last.
            token_ids, positions: int64, at most `rows`.
            bias: fp32 `[tokens]`, see `CausalRows`.
        """
        if not self._record:
            return None
        recorded = self._scores.get(score_pass)
        if recorded is None:
            try:
                recorded = self._scores[score_pass] = RecordedScores(self, score_pass, rows)
            except RuntimeError as error:
                self._give_up(error)
                return None
        return recorded.run(token_ids, positions, bias)

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
