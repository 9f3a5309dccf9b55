"""What was reused for one request, and what that cost."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kvweave.reuse.options import Mode


@dataclass(slots=True)
class ChunkReport:
    """One chunk of the prompt: where its KV was found, or why it was not.

    Attributes:
        chunk_id: what the client called the chunk, or a digest of its text.
        tokens: length of the chunk.
        tier: where the KV lay; None for a miss.
        miss_reason: why there was none; None for a hit.
        loaded: whether it was loaded; a hit may be computed all the same where that is faster.
    """

    chunk_id: str
    tokens: int
    tier: Literal["gpu", "cpu", "ssd"] | None
    miss_reason: str | None
    loaded: bool = False


@dataclass(slots=True)
class ReuseReport:
    """What one request took from the caches and what it computed. All counts are in tokens.

    Attributes:
        mode: how the request was asked to reuse KV.
        selector: the selector that was used; None where nothing was selected.
        recompute_ratio: the ratio that was used; None where nothing was selected.
        prompt_tokens: length of the prompt.
        cached_tokens: prompt tokens whose KV came from a cache and was kept.
        matched: tokens of chunks found in a cache.
        rotated: matched tokens whose keys were moved to another position.
        forced: tokens that had to be computed (fresh segments, chunks not in the cache).
        selected: matched tokens that the selector picked for recomputing.
        loaded_tokens: tokens by the tier they were loaded from: `gpu`, `cpu`, `ssd`.
        loaded_bytes: bytes of chunk KV loaded, over all tiers.
        time_ms: milliseconds by stage: `queue`, `lookup`, `load`, `probe`,
            `compute`, `write`, `ttft`, ...
        chunks: one entry for each chunk segment, in prompt order.
        plan: whether cached chunks were loaded or computed again, and why.
        hint: what keeps chunks from being found, where something does.
        first_token_logprobs: float32, little-endian, `[vocab]`; None unless asked for.
    """

    mode: Mode
    selector: str | None
    recompute_ratio: float | None
    prompt_tokens: int
    cached_tokens: int
    matched: int
    rotated: int
    forced: int
    selected: int
    loaded_tokens: dict[str, int]
    loaded_bytes: int
    time_ms: dict[str, float]
    chunks: list[ChunkReport]
    first_token_logprobs: bytes | None
    plan: str | None = None
    hint: str | None = None

    @classmethod
    def of(cls, mode: Mode, selector: str | None, prompt_tokens: int) -> ReuseReport:
        """The report of a request of which nothing is known yet."""
        return cls(
            mode=mode,
            selector=selector,
            recompute_ratio=None,
            prompt_tokens=prompt_tokens,
            cached_tokens=0,
            matched=0,
            rotated=0,
            forced=0,
            selected=0,
            loaded_tokens={"gpu": 0, "cpu": 0, "ssd": 0},
            loaded_bytes=0,
            time_ms={},
            chunks=[],
            first_token_logprobs=None,
        )

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready values, as it appears under `usage.kvweave`.

        `first_token_logprobs` is base64 text, and absent unless it was asked for.
        """
        values = asdict(self)
        if self.first_token_logprobs is None:
            del values["first_token_logprobs"]
        else:
            encoded = base64.b64encode(self.first_token_logprobs).decode("ascii")
            values["first_token_logprobs"] = encoded
        return values
