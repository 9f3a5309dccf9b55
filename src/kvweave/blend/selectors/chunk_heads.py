"""Select the first tokens of each chunk (EPIC, Hu et al. 2024, arXiv 2410.15332).

A chunk computed alone takes its own beginning for the beginning of the text, so its first tokens
hold attention sinks that do not belong in the middle of a prompt.
"""

from __future__ import annotations

import torch

from kvweave.blend.selectors.base import Selection


class ChunkHeads:
    """Spreads the budget evenly over the chunks, first tokens first."""

    def select(self, selection: Selection) -> torch.Tensor:
        layout = selection.layout
        depth = torch.full((layout.tokens,), layout.tokens, device=layout.token_ids.device)
        for placement in layout.placements:
            tokens = placement.tokens
            span = slice(placement.start, placement.start + tokens)
            depth[span] = torch.arange(tokens, device=depth.device)
        candidates = layout.candidate_positions
        # Stable, so that chunks in front win the last few places.
        order = depth[candidates].argsort(stable=True)
        return candidates[order[: selection.budget]]
