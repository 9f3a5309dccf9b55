"""What the API needs of an engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from kvweave.engine import Delta, ReuseOptions, SamplingParams
from kvweave.prompt import Prompt


class Engine(Protocol):
    """An engine that serves one model."""

    @property
    def model_name(self) -> str:
        """The name clients ask for."""

    @property
    def max_model_len(self) -> int:
        """Most tokens that prompt and answer may have together."""

    def generate(
        self, prompt: Prompt, params: SamplingParams, reuse: ReuseOptions, *, tenant: str = ""
    ) -> AsyncGenerator[Delta, None]:
        """Stream the answer. Closing the iterator cancels the request.

        Raises:
            PromptTooLong, EngineOverloaded, EngineStopped, UnknownSelector: before the first delta.
        """

    async def warm(
        self, prefix_ids: tuple[int, ...], chunks: Sequence[tuple[int, ...]], *, tenant: str = ""
    ) -> int:
        """Compute and store the KV of these chunks; returns how many were new."""

    def pending_chunks(self) -> int:
        """Number of chunks whose KV is still to be computed in the background."""
