"""Which heads of a model retrieve: found by where they look on questions with known evidence."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from kvweave.bench.quality.laboratory import Laboratory
from kvweave.bench.questions import Question
from kvweave.blend.selectors.base import Stretches
from kvweave.blend.selectors.sentences import whole_sentences

HEADS = 8
"""More heads find no more, and cost more."""
NEARLY = 0.005
"""Share of the evidence given up for a probe of fewer layers."""
RATIO = 0.15

_NAME = re.compile(r"(?<!^)\b[A-Z]\w*(?: [A-Z]\w*)*")


@dataclass(frozen=True, slots=True)
class HeadProfile:
    """The heads that find evidence best, the best first.

    Attributes:
        heads: (layer, head).
        found: share of the evidence tokens that whole sentences by these heads' attention hold.
        found_alone: the same for each head alone.
    """

    heads: tuple[tuple[int, int], ...]
    found: float
    found_alone: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Observed:
    """attention: fp16 `[layers, heads, tokens]`; evidence, candidates: bool `[tokens]`."""

    attention: torch.Tensor
    sentences: Stretches
    candidates: torch.Tensor
    evidence: torch.Tensor
    budget: int

    def found(self, scores: torch.Tensor) -> float:
        chosen = whole_sentences(scores, self.sentences, self.candidates, self.budget)
        return float(self.evidence[chosen].sum()) / min(self.budget, int(self.evidence.sum()))


def profile_heads(
    laboratory: Laboratory,
    questions: Sequence[Question],
    progress: Callable[[int], object] = lambda done: None,
) -> HeadProfile:
    """Let every head look at the questions' chunks, and keep those that see the evidence.

    Evidence are the sentences that hold the answer or a name from the question. A question whose
    chunks need no recomputing tells nothing and is left out. `progress` is called with the number
    of questions done.

    Raises:
        ValueError: no question tells anything.
    """
    observed: list[_Observed] = []
    for number, question in enumerate(questions, start=1):
        if (seen := _observe(laboratory, question)) is not None:
            observed.append(seen)
        progress(number)
    if not observed:
        raise ValueError("no question has evidence that could be computed again")
    layers, heads = observed[0].attention.shape[:2]

    def found(chosen: Sequence[tuple[int, int]]) -> float:
        shares = (
            seen.found(torch.stack([seen.attention[place].float() for place in chosen]).sum(0))
            for seen in observed
        )
        return sum(shares) / len(observed)

    alone = {
        (layer, head): found([(layer, head)]) for layer in range(layers) for head in range(heads)
    }
    ranked = sorted(alone, key=lambda place: -alone[place])
    by_depth: dict[int, tuple[tuple[int, int], ...]] = {}
    for depth in range(1, layers + 1):
        best = tuple(place for place in ranked if place[0] < depth)[:HEADS]
        by_depth.setdefault(max(layer for layer, _ in best), best)
    together = {depth: found(best) for depth, best in by_depth.items()}
    enough = max(together.values()) - NEARLY
    depth = min(depth for depth, share in together.items() if share >= enough)
    chosen = by_depth[depth]
    return HeadProfile(chosen, together[depth], tuple(alone[place] for place in chosen))


def _observe(laboratory: Laboratory, question: Question) -> _Observed | None:
    prompt = laboratory.prompt(question)
    with laboratory.layout(prompt) as layout:
        candidates = layout.candidates.cpu()
        numbers = laboratory.sentences(layout)
        evidence = laboratory.evidence(layout, numbers, wanted_words(question)) & candidates
        budget = round(RATIO * layout.chunk_tokens)
        if not evidence.any() or budget < 1:
            return None
        attention = laboratory.question_attention(layout).half().cpu()
    return _Observed(attention, Stretches.of(numbers), candidates, evidence, budget)


def wanted_words(question: Question) -> tuple[str, ...]:
    """What the evidence has in it: an accepted answer, or a name that the question asks about."""
    return (*question.answers, *_NAME.findall(question.question))
