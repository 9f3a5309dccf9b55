"""Select whole sentences that the question's retrieval heads attend to.

A few heads of a model find what a question needs (Wu et al. 2024, "Retrieval Head Mechanistically
Explains Long-Context Factuality", arXiv 2404.15574); `kvweave profile` tells which. Their attention
peaks on single tokens, but what such a token means in this prompt was worked out over the tokens
before it: "she" of "she plays the flute" must be read again as well, or "flute" still belongs to
nobody. So sentences are taken whole, the most attended first; what a chunk says near the question
does not count for more by that alone, and what shares rare words with the most attended counts too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from kvweave.blend.attention import CausalRows
from kvweave.blend.layout import PromptLayout
from kvweave.blend.rope import RowPositions
from kvweave.blend.selectors.base import Selection, Stretches, stretch_sums, strongest
from kvweave.blend.selectors.links import linked_scores
from kvweave.blend.selectors.probe import question_scores, watch_heads
from kvweave.models import BlendableModel

if TYPE_CHECKING:
    from kvweave.blend.gpu.recording import LayerKV

#: Where the tokens that end a sentence are not known, so many tokens stand for one.
WINDOW = 16
#: In this share of the layers the question is read without the chunks, whose KV then need not be
#: there yet. Retrieval heads find the same answers so; all heads of the middle find fewer.
APART = 0.25
#: Watched where the retrieval heads are not known: all heads of these layers, as shares of all.
MIDDLE = 0.4, 0.8
#: Tokens to either side over which the level of the scores is taken.
REACH = 128
_ABOVE_ALL = 1e4


class Sentences:
    """Sentences by the mean attention on their tokens, until one no longer fits into the budget.

    What is left of the budget goes to the most attended of the other tokens.
    """

    def select(self, selection: Selection) -> torch.Tensor:
        layout = selection.layout
        scores = evened(question_scores(selection, retrieval_attention), layout.candidates)
        selection.scores = scores
        numbers = sentence_numbers(layout, selection.model.profile.sentence_ends)
        sentences = Stretches.of(numbers, scores.device)
        linked = linked_scores(layout, numbers, sentences, scores)
        return whole_sentences(scores, sentences, layout.candidates, selection.budget, linked)


def evened(scores: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    """Scores less what a token's place alone draws: the later in a prompt, the more attention.

    Each is divided by the root of the geometric mean of the candidates' scores around it.

    Args:
        scores: fp32 `[tokens]`.
        candidates: bool `[tokens]`.
    """
    logs = (scores + 1e-6).log()
    counted = candidates.float()
    share = _mean_around(counted)
    level = _mean_around(logs * counted) / share.clamp(min=1e-9)
    overall = (logs * counted).sum() / counted.sum().clamp(min=1)
    return scores * (-0.5 * torch.where(share > 0, level, overall)).exp()


def _mean_around(values: torch.Tensor) -> torch.Tensor:
    # Not by differences of running sums: those are not the same on every rank.
    pooled = F.avg_pool1d(values[None, None], 2 * REACH + 1, 1, REACH, count_include_pad=False)
    return pooled[0, 0]


def whole_sentences(
    scores: torch.Tensor,
    sentences: Stretches,
    candidates: torch.Tensor,
    budget: int,
    linked: torch.Tensor | None = None,
) -> torch.Tensor:
    """`budget` positions: the sentences with the highest mean score, then the best other tokens.

    The first sentence that does not fit ends the whole ones: shorter ones after it matter less than
    its best tokens. A GPU is not waited for, and the same scores give the same choice on every
    rank.

    Args:
        scores: fp32 `[tokens]`.
        candidates: bool `[tokens]`; of a sentence, only these count and are taken.
        linked: fp32 `[sentences]`, what a sentence counts for at least.
    """
    counted = candidates.float()
    sizes = stretch_sums(counted, sentences.offsets)
    worth = stretch_sums(scores * counted, sentences.offsets) / sizes.clamp(min=1)
    if linked is not None:
        worth = torch.maximum(worth, linked)
    order = worth.argsort(descending=True, stable=True)
    chosen = torch.empty_like(order, dtype=torch.bool)
    chosen[order] = sizes[order].cumsum(0) <= budget
    # Within a layer a score is a probability: no sum of them comes near this.
    return strongest(scores + chosen[sentences.numbers] * _ABOVE_ALL, candidates, budget)


def retrieval_attention(
    model: BlendableModel,
    row_ids: torch.Tensor,
    placed: RowPositions,
    causal: CausalRows,
    layer_kv: LayerKV,
    tokens: int,
) -> torch.Tensor:
    """See `watch_heads`."""
    arguments = model, row_ids, placed, causal, layer_kv, tokens
    if model.profile.heads is None:
        first, last = (round(share * model.layers) for share in MIDDLE)
        return watch_heads(*arguments, dict.fromkeys(range(first, max(last, first + 1))))
    heads: dict[int, list[int]] = {}
    for layer, head in model.profile.heads:
        heads.setdefault(layer, []).append(head)
    return watch_heads(*arguments, heads, apart=min(round(APART * model.layers), min(heads)))


def sentence_numbers(layout: PromptLayout, ends: torch.Tensor | None) -> np.ndarray:
    """The number of the sentence that each token belongs to: int64 `[tokens]`, ascending.

    No sentence goes on from one chunk to the next.
    """
    starts = np.zeros(layout.tokens, dtype=bool)
    if ends is not None:
        starts[1:] = ends.numpy()[layout.ids[:-1]]
    for placement in layout.placements:
        starts[placement.start] = True
        if ends is None:
            starts[placement.start : placement.start + placement.tokens : WINDOW] = True
    return starts.cumsum() - int(starts[0])
