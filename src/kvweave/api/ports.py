"""What the API needs of an engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kvweave.engine import Delta, Progress, ReuseOptions, SamplingParams
from kvweave.prompt import Prompt

if TYPE_CHECKING:
    from kvweave.explain import Explanation


class Engine(Protocol):
    """An engine that serves one model."""

    @property
    def model_name(self) -> str:
        """The name clients ask for."""

    @property
    def max_model_len(self) -> int:
        """Most tokens that prompt and answer may have together."""

    def generate(
        self,
        prompt: Prompt,
        params: SamplingParams,
        reuse: ReuseOptions,
        *,
        tenant: str = "",
        progress: Progress | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Stream the answer, and keep `progress` current. Closing the iterator cancels the request.

        Raises:
            PromptTooLong, EngineOverloaded, EngineStopped, UnknownSelector: before the first delta.
        """

    async def warm(
        self, prefix_ids: tuple[int, ...], chunks: Sequence[tuple[int, ...]], *, tenant: str = ""
    ) -> int:
        """Compute and store the KV of these chunks; returns how many were new."""

    async def explain(
        self, prompt: Prompt, reuse: ReuseOptions, *, tenant: str = ""
    ) -> Explanation:
        """What would become of every token of the prompt. Raises like `generate`."""

    def quality(self) -> dict[str, Any] | None:
        """What is known of the quality of answers; None if it is not guarded."""

    def pending_chunks(self) -> int:
        """Number of chunks whose KV is still to be computed in the background."""
