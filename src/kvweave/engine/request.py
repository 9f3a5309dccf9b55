"""What a caller asks of an engine and what comes back, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kvweave.engine.report import ReuseReport

Mode = Literal["blend", "reuse", "prefix", "full"]
"""How much of a prompt's KV may come from the caches.

`full` computes every token; `prefix` reuses exact prefixes only; `reuse` takes cached chunks
and selects nothing for recomputing; `blend` takes cached chunks and recomputes a selected share.
"""

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


@dataclass(frozen=True, slots=True)
class ReuseOptions:
    """How one request uses cached chunk KV.

    Attributes:
        mode: see `Mode`.
        recompute_ratio: share of the cached chunk tokens that the selector may pick, 0..1; None
            means the configured one.
        selector: name of the selector; None means the configured one.
        first_token_logprobs: also report the log-probabilities of the first answer token over the
            whole vocabulary.
        store_chunks: whether KV of chunks that miss is computed afterwards and kept for later
            requests.
    """

    mode: Mode = "blend"
    recompute_ratio: float | None = None
    selector: str | None = None
    first_token_logprobs: bool = False
    store_chunks: bool = True


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
