"""What a selector is: the rule that picks which cached tokens are computed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from kvweave.blend.feed import LayerFeed
from kvweave.blend.layout import PromptLayout, together
from kvweave.models import BlendableModel


@dataclass(slots=True)
class Selection:
    """What a selector may look at: the prompt, its cached KV and the model.

    Attributes:
        budget: how many positions may be chosen, at least 1 and fewer than there are candidates.
        scores: what the selector went by, a number `[tokens]` for how much each token matters;
            None for one that goes by something else. It is there to explain the choice.
    """

    model: BlendableModel
    layout: PromptLayout
    feed: LayerFeed
    budget: int
    scores: torch.Tensor | None = None


class Selector(Protocol):
    """Picks cached tokens to recompute. Stateless: one instance serves all requests."""

    def select(self, selection: Selection) -> torch.Tensor:
        """int64 positions, at most `selection.budget`, all of them `layout.candidates`."""


@dataclass(frozen=True, slots=True)
class Stretches:
    """Neighbouring tokens that are taken together, such as sentences; none is left out.

    Attributes:
        numbers: int64 `[tokens]`, of each token's stretch: ascending from 0, none without tokens.
        offsets: int64 `[stretches + 1]`, where each begins, and the end.
    """

    numbers: torch.Tensor
    offsets: torch.Tensor

    @classmethod
    def of(cls, numbers: np.ndarray, device: torch.device | str = "cpu") -> Stretches:
        """From the numbers, on the host."""
        lengths = np.bincount(numbers)
        return cls(*together([numbers, np.concatenate([[0], lengths.cumsum()])], device))

    @property
    def count(self) -> int:
        return len(self.offsets) - 1


def stretch_sums(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Sums of neighbouring stretches of `values` `[tokens, ...]`: `[stretches, ...]`.

    Added in the same order on every rank, unlike with `index_add_`.
    """
    return torch.segment_reduce(values, "sum", offsets=offsets, unsafe=True)


def strongest(scores: torch.Tensor, candidates: torch.Tensor, budget: int) -> torch.Tensor:
    """The `budget` candidates (bool `[tokens]`) with the highest `scores` (`[tokens]`)."""
    return scores.masked_fill(~candidates, float("-inf")).topk(budget).indices
