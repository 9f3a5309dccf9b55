"""Select nothing: plain reuse of chunk KV, the control that shows the damage."""

from __future__ import annotations

import torch

from kvweave.blend.selectors.base import Selection


class NoTokens:
    """Chooses no token, whatever the budget."""

    def select(self, selection: Selection) -> torch.Tensor:
        return torch.empty(0, dtype=torch.int64, device=selection.model.device)
