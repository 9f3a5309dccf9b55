"""How much of a prompt's KV may come from the caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["blend", "reuse", "prefix", "full"]
"""How much of a prompt's KV may come from the caches.

`full` computes every token; `prefix` reuses exact prefixes only; `reuse` takes cached chunks
and selects nothing for recomputing; `blend` takes cached chunks and recomputes a selected share.
"""


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
