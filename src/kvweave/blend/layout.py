"""Where everything of one prompt lies: cached chunk KV at its positions, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kvweave.kv import ChunkLease


@dataclass(frozen=True, slots=True)
class Placement:
    """Leased KV at its place in a prompt.

    exact: its KV equals the full prefill's here, since everything before it in this prompt is what
    stood before it when it was computed: the system prefix, and a chunk right after it.
    """

    lease: ChunkLease
    start: int
    exact: bool = False
    is_chunk: bool = True
    """False for the shared system prefix, which does not count towards the recompute budget."""

    @property
    def tokens(self) -> int:
        return len(self.lease.ref.token_ids)


class PromptLayout:
    """One prompt of `tokens` tokens over which blending runs.

    The last token is never filled: the engine computes it, and with it the first logits.

    Attributes:
        token_ids: int64 `[tokens]` on the model's device.
        cached: bool `[tokens]`, positions whose KV comes from a lease.
        exact: bool `[tokens]`, cached positions that never need recomputing.
        chunk_tokens: cached tokens that belong to chunks (not to the system prefix).
    """

    def __init__(
        self,
        token_ids: Sequence[int],
        placements: Sequence[Placement],
        device: torch.device | str = "cpu",
    ) -> None:
        self.tokens = len(token_ids)
        self.token_ids = torch.tensor(token_ids, dtype=torch.int64, device=device)
        self.placements = tuple(placements)
        self.cached = torch.zeros(self.tokens, dtype=torch.bool, device=device)
        self.exact = torch.zeros_like(self.cached)
        self.chunk_tokens = 0
        for placement in placements:
            span = slice(placement.start, placement.start + placement.tokens)
            self.cached[span] = True
            self.exact[span] = placement.exact
            if placement.is_chunk:
                self.chunk_tokens += placement.tokens
        # The last position belongs to the engine, whatever stands there.
        self.cached[-1:] = False

    @property
    def forced(self) -> torch.Tensor:
        """int64 positions that must be computed: all but the last that are not cached."""
        return (~self.cached[:-1]).nonzero().flatten()

    @property
    def candidates(self) -> torch.Tensor:
        """bool `[tokens]`: cached positions that a selector may choose."""
        return self.cached & ~self.exact

    @property
    def question(self) -> torch.Tensor:
        """int64 positions after the last cached token: what is asked, the last token included."""
        cached = self.cached.nonzero().flatten()
        start = int(cached[-1]) + 1 if len(cached) else 0
        return torch.arange(start, self.tokens, device=self.cached.device)
