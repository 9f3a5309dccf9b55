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
        ids: the tokens.
        token_ids: the same, int64 `[tokens]` on the model's device.
        cached: bool `[tokens]`, positions whose KV comes from a lease.
        exact: bool `[tokens]`, cached positions that never need recomputing.
        candidates: bool `[tokens]`, cached positions that a selector may choose;
            `candidate_positions` are the same as int64 positions.
        forced: int64 positions that must be computed: all but the last that are not cached.
        question: int64 positions after the last cached token: what is asked, the last token
            included.
        cached_tokens: how many positions are cached.
        chunk_tokens: cached tokens that belong to chunks (not to the system prefix).
    """

    def __init__(
        self,
        token_ids: Sequence[int],
        placements: Sequence[Placement],
        device: torch.device | str = "cpu",
    ) -> None:
        self.ids = tuple(token_ids)
        self.tokens = len(token_ids)
        self.placements = tuple(placements)
        self.chunk_tokens = 0
        # Worked out on the host: asking a device how many there are would wait for it.
        cached = torch.zeros(self.tokens, dtype=torch.bool)
        exact = torch.zeros_like(cached)
        for placement in placements:
            span = slice(placement.start, placement.start + placement.tokens)
            cached[span] = True
            exact[span] = placement.exact
            if placement.is_chunk:
                self.chunk_tokens += placement.tokens
        # The last position belongs to the engine, whatever stands there.
        cached[-1:] = False
        held = cached.nonzero().flatten()
        after = int(held[-1]) + 1 if len(held) else 0
        candidates = cached & ~exact

        def there(values: torch.Tensor) -> torch.Tensor:
            return to_device(values, device)

        self.token_ids = there(torch.tensor(token_ids, dtype=torch.int64))
        self.cached = there(cached)
        self.exact = there(exact)
        self.candidates = there(candidates)
        self.candidate_positions = there(candidates.nonzero().flatten())
        self.forced = there((~cached[:-1]).nonzero().flatten())
        self.question = there(torch.arange(after, self.tokens))
        self.cached_tokens = len(held)


def to_device(values: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Copy host values to the device without waiting for what the device does."""
    if torch.device(device).type == "cuda":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)
