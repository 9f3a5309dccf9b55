"""How far one distribution of the first answer token lies from another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LogProbs = NDArray[np.float32]


def kl_divergence(full: LogProbs, arm: LogProbs) -> float:
    """KL(full || arm) in nats of two distributions given as log-probabilities `[vocab]`.

    Computed in float64. Infinite where `arm` rules out what `full` allows.

    Raises:
        ValueError: the vocabularies differ in size.
    """
    if full.shape != arm.shape:
        raise ValueError(f"log-probabilities over {full.size} and {arm.size} tokens can't compare")
    p, q = full.astype(np.float64), arm.astype(np.float64)
    weight = np.exp(p)
    possible = weight > 0  # 0 * log 0 is 0
    terms = weight[possible] * (p[possible] - q[possible])
    # Rounding can leave a sum of zeros slightly below zero.
    return max(0.0, float(terms.sum()))


def same_top1(full: LogProbs, arm: LogProbs) -> bool:
    """Whether the likeliest token is the same."""
    return bool(full.argmax() == arm.argmax())
