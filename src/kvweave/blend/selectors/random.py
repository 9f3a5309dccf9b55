"""Select at random: the control that any rule must beat."""

from __future__ import annotations

import torch

from kvweave.blend.selectors.base import Selection
from kvweave.digest import digest_fields, encode_ids


class RandomTokens:
    """Chooses uniformly among the candidates; the same prompt always gives the same choice."""

    def select(self, selection: Selection) -> torch.Tensor:
        layout = selection.layout
        seed = int(digest_fields(encode_ids(layout.token_ids.tolist()))[:15], 16)
        generator = torch.Generator().manual_seed(seed)
        candidates = layout.candidate_positions
        order = torch.randperm(len(candidates), generator=generator)
        return candidates[order[: selection.budget].to(candidates.device)]
