"""What a caller asks of an engine and what comes back, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kvweave.reuse import ReuseReport

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the answer's tokens are drawn.

    Attributes:
        max_tokens: most tokens to generate, at least 1.
        temperature: 0 is greedy.
        top_p: share of the probability mass that is sampled from, 0..1.
        seed: makes sampling repeatable; None draws a fresh one.
        stop: strings that end the answer and are not part of it.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(slots=True)
class Progress:
    """How far a request has come, kept current by the engine: of use to who ends it early.

    Attributes:
        prompt_tokens: of the prompt, whose KV is there or being computed at this moment.
        cached_tokens: how many of them came from a cache.
        completion_tokens: generated so far.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """One streamed step of an answer.

    Attributes:
        text: the new text; may be empty.
        token_count: completion tokens generated so far.
        finish_reason: set on the last delta only.
        report: set on the last delta only.
    """

    text: str
    token_count: int
    finish_reason: FinishReason | None = None
    report: ReuseReport | None = None
