"""What becomes of every token of a prompt: computed, loaded, or loaded and computed again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from kvweave.blend import PromptLayout, Selected
from kvweave.prompt import Prompt
from kvweave.reuse import ReuseReport

Fate = Literal["computed", "exact", "kept", "selected"]
"""`computed`: not in the cache. `exact`: loaded, and what a full prefill would give. `kept`: loaded
as it was stored. `selected`: loaded, and computed again."""


@dataclass(frozen=True, slots=True)
class ExplainedSegment:
    """One piece of the prompt.

    Attributes:
        tier: where its KV lay; None if it was not in the cache, or is no chunk.
        miss_reason: why it was not there; None for a hit, or if it is no chunk.
        texts: its tokens as text.
        fates: what becomes of each.
        weights: how much each matters to the selector, as a share of what the token that matters
            most does; empty for a selector that does not weigh tokens.
    """

    role: str
    chunk_id: str | None
    tier: str | None
    miss_reason: str | None
    texts: tuple[str, ...]
    fates: tuple[Fate, ...]
    weights: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """A whole prompt. `plan` says why chunks were loaded or not, if there is something to say."""

    selector: str | None
    recompute_ratio: float | None
    plan: str | None
    segments: tuple[ExplainedSegment, ...]

    def counts(self) -> dict[str, int]:
        """Tokens by fate."""
        found = Counter(fate for segment in self.segments for fate in segment.fates)
        return {fate: found[fate] for fate in ("computed", "exact", "kept", "selected")}

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "tokens": self.counts()}


def explain(
    prompt: Prompt,
    layout: PromptLayout,
    selected: Selected,
    report: ReuseReport,
    decode: Callable[[Sequence[int]], str],
) -> Explanation:
    """Say what becomes of every token.

    Args:
        layout: where the leased KV of the prompt lies.
        selected: what is computed again.
        report: what was found of the prompt's chunks.
        decode: token ids to text.
    """
    fates = _fates(layout, selected.positions)
    weights = [] if selected.scores is None else _weights(selected.scores, layout)
    chunks = iter(report.chunks)
    segments, start = [], 0
    for segment in prompt.segments:
        stop = start + len(segment.token_ids)
        chunk = next(chunks) if segment.role == "chunk" else None
        segments.append(
            ExplainedSegment(
                role=segment.role,
                chunk_id=segment.chunk_id,
                tier=None if chunk is None else chunk.tier,
                miss_reason=None if chunk is None else chunk.miss_reason,
                texts=tuple(decode([token_id]) for token_id in segment.token_ids),
                fates=tuple(fates[start:stop]),
                weights=tuple(weights[start:stop]),
            )
        )
        start = stop
    return Explanation(report.selector, report.recompute_ratio, report.plan, tuple(segments))


def _fates(layout: PromptLayout, selected: torch.Tensor) -> list[Fate]:
    fates: list[Fate] = ["computed"] * layout.tokens
    for position in layout.cached.nonzero().flatten().tolist():
        fates[position] = "exact" if layout.exact[position] else "kept"
    for position in selected.tolist():
        fates[position] = "selected"
    return fates


def _weights(scores: torch.Tensor, layout: PromptLayout) -> list[float]:
    # The first tokens of a prompt draw attention whatever it says: only the chunks are compared.
    seen = scores.float().masked_fill(~layout.candidates, 0.0)
    weights: list[float] = (seen / seen.max().clamp_min(1e-9)).tolist()
    return weights
