"""Where everything of one prompt lies: cached chunk KV at its positions, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
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
        ids: the tokens, int64 `[tokens]` on the host.
        token_ids: the same on the model's device.
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
        self.ids = np.array(token_ids, dtype=np.int64)
        self.tokens = len(token_ids)
        self.placements = tuple(placements)
        self.chunk_tokens = 0
        # Worked out on the host: asking a device how many there are would wait for it. And by
        # numpy: for a few thousand numbers, torch's threads take longer to wake than to count.
        cached, exact = np.zeros((2, self.tokens), dtype=bool)
        for placement in placements:
            span = slice(placement.start, placement.start + placement.tokens)
            cached[span] = True
            exact[span] = placement.exact
            if placement.is_chunk:
                self.chunk_tokens += placement.tokens
        # The last position belongs to the engine, whatever stands there.
        cached[-1:] = False
        held = cached.nonzero()[0]
        after = int(held[-1]) + 1 if len(held) else 0
        candidates = cached & ~exact
        self.token_ids, self.candidate_positions, self.forced, self.question = together(
            [
                self.ids,
                candidates.nonzero()[0],
                (~cached[:-1]).nonzero()[0],
                np.arange(after, self.tokens),
            ],
            device,
        )
        self.cached, self.exact, self.candidates = together([cached, exact, candidates], device)
        self.cached_tokens = len(held)


def together(arrays: Sequence[np.ndarray], device: torch.device | str) -> tuple[torch.Tensor, ...]:
    """Arrays of one dtype on the device, by one copy."""
    joined = to_device(torch.from_numpy(np.concatenate(arrays)), device)
    return joined.split([len(array) for array in arrays])


def to_device(values: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Copy host values to the device without waiting for what the device does."""
    if torch.device(device).type == "cuda":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)
