"""One request to a model, from its arrival to its end."""

from __future__ import annotations

import time
from collections.abc import Mapping

from starlette.types import Scope

from kvweave.accounts import Caller, UsageRecord
from kvweave.formats import (
    AnswerEnd,
    AnswerEvent,
    AnswerStart,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from kvweave.providers import text_tokens

# The endpoints whose requests are recorded, and what the records call them.
FORMATS: Mapping[str, str] = {
    "/chat/completions": "chat.completions",
    "/completions": "completions",
    "/responses": "responses",
    "/messages": "messages",
    "/embeddings": "embeddings",
    "/chunks": "chunks",
}
CLIENT_DISCONNECTED = 499


class Exchange:
    """What becomes of one request of `caller`."""

    def __init__(self, format: str, caller: Caller) -> None:
        self.caller = caller
        self.model = ""
        self._format = format
        self._time = time.time()
        self._started = time.perf_counter()
        self._ttft_s: float | None = None
        self._usage = Usage()
        self._expected_prompt_tokens = 0
        self._seen_tokens = 0
        self._provider = ""
        self._works = False
        self._failure: tuple[int, str] | None = None

    def asked(self, provider: str) -> None:
        """A provider, or the engine of this server, is asked."""
        self._provider = provider
        self._works = True

    def turned_away(self) -> None:
        """The one asked last has no answer, and did no work that counts."""
        self._works = False

    def expects(self, prompt_tokens: int) -> None:
        """About how long the prompt is, for as long as nobody says."""
        self._expected_prompt_tokens = prompt_tokens

    def told(self, event: AnswerEvent) -> None:
        """An event of the answer."""
        match event:
            case AnswerStart(prompt_tokens=tokens):
                self.used(Usage(prompt_tokens=tokens))
            case TextDelta(text) | ReasoningDelta(text) | ToolCallDelta(_, text):
                self.first_token()
                self._seen_tokens += text_tokens(len(text))
            case ToolCallStart(_, _, name):
                self.first_token()
                self._seen_tokens += text_tokens(len(name))
            case AnswerEnd(usage=usage):
                self.used(usage)

    def first_token(self) -> None:
        """Something of the answer is there."""
        if self._ttft_s is None:
            self._ttft_s = time.perf_counter() - self._started

    def used(self, usage: Usage) -> None:
        """What the request used, as far as is known."""
        self._usage = usage

    def failed(self, status: int, code: str | None) -> None:
        """It ended in an error; the first one counts."""
        self._failure = self._failure or (status, code or "error")

    def record(self, status: int) -> UsageRecord:
        """The record of it, now that it has ended.

        `status` is what was sent; an error that came later counts more. Where nobody told what was
        used, because the answer broke off before or the provider never tells, it is estimated.
        """
        failed_status, code = self._failure or (status, None)
        expected = self._expected_prompt_tokens if self._works else 0
        return UsageRecord(
            time=self._time,
            project=self.caller.project,
            key_id=self.caller.key_id,
            model=self.model,
            provider=self._provider,
            format=self._format,
            status=failed_status,
            error_code=code,
            prompt_tokens=self._usage.prompt_tokens or expected,
            cached_tokens=self._usage.cached_tokens,
            completion_tokens=self._usage.completion_tokens or self._seen_tokens,
            ttft_s=self._ttft_s,
            duration_s=time.perf_counter() - self._started,
        )


def exchange_of(scope: Scope) -> Exchange:
    """The exchange that a request to a model belongs to."""
    found = scope["state"]["exchange"]
    assert isinstance(found, Exchange)
    return found


def caller_of(scope: Scope) -> Caller:
    """Who sent a request, as authentication found."""
    found = scope["state"]["caller"]
    assert isinstance(found, Caller)
    return found


async def reserve(scope: Scope, tokens: int) -> None:
    """Charge the caller for the prompt and the longest answer, before any work is done for them.

    Raises:
        LimitExceeded: the key may not use so many.
    """
    await scope["state"]["visit"].reserve(tokens)
