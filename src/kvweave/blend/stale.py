"""Less attention to what stays stale.

KV that was computed behind other text than what stands before it now draws more attention than the
full prefill's would: each chunk was the first and only one when it was computed. Tokens that are
computed again therefore see such keys with a lower score. Context encoded in parallel is treated
so in APE (Yang et al. 2025, "Adaptive Parallel Encoding", arXiv 2502.05431, section 4: a factor on
the attention to the context); here it acts between stale and recomputed tokens of one prompt.
"""

from __future__ import annotations

import torch

from kvweave.blend.layout import PromptLayout

#: Added to the scores of stale keys: they weigh exp(-1.5), about a fifth.
STALE_BIAS = -1.5


def stale_bias(layout: PromptLayout, recomputed: torch.Tensor) -> torch.Tensor | None:
    """What to add to the scores of each key: fp32 `[tokens]`; None where nothing stays stale.

    recomputed: int64, the cached positions that are computed again.
    """
    if len(recomputed) == len(layout.candidate_positions):
        return None
    # Filled, not assigned: a number of the host's to assign would first be copied to the device.
    return (layout.candidates.float() * STALE_BIAS).index_fill_(0, recomputed, 0.0)
