"""What is written down of a request: who, what, how much. Never its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """One request that has ended, however it ended.

    Attributes:
        time: when it came, in seconds since the epoch.
        project: `Caller.project`.
        key_id: `Caller.key_id`.
        model: as the client asked for it.
        provider: name of the backend that answered; empty if none was asked.
        format: the API that was called, such as "chat.completions" or "messages".
        status: HTTP status. A stream that broke off has the one its error would have had before it;
            499: the client hung up.
        error_code: `code` of the error that the client got; None if all went well.
        prompt_tokens: length of the prompt, as far as it was computed; estimated where a provider
            does not say; 0 if nobody worked on it.
        cached_tokens: how many of them came from a cache.
        completion_tokens: length of the answer, as far as it came; estimated likewise.
        ttft_s: seconds to the first token; None if there was none.
        duration_s: seconds to the end.
    """

    time: float
    project: str
    key_id: str | None
    model: str
    provider: str
    format: str
    status: int
    error_code: str | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_s: float | None
    duration_s: float


class UsageSink(Protocol):
    """Takes note of requests that have ended."""

    def record(self, record: UsageRecord) -> None:
        """Take note of one. Returns at once, never blocks or fails; may be called by any thread."""
