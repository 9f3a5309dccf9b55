"""Answers in OpenAI's chat format, as backends give them.

Compatible servers leave out much of what OpenAI sends. Only what an answer cannot do without is
required: a choice, and within it a message or a delta.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args

from pydantic import AliasChoices, Field

from kvweave.formats.answer import (
    Answer,
    AnswerEnd,
    AnswerEvent,
    AnswerStart,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    Usage,
    new_id,
    now,
)
from kvweave.formats.errors import FormatError
from kvweave.formats.parsing import validated
from kvweave.formats.reading import Count, Lenient, event_json, raise_if_error
from kvweave.formats.sse import ServerEvent


class PromptDetails(Lenient):
    """`prompt_tokens_details`."""

    cached_tokens: Count = 0


class CompletionDetails(Lenient):
    """`completion_tokens_details`."""

    reasoning_tokens: Count = 0


class UsageFields(Lenient):
    """`usage`."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    kvweave: dict[str, Any] | None = None

    def usage(self) -> Usage:
        """The same in the form between all formats."""
        prompt, completion = self.prompt_tokens_details, self.completion_tokens_details
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=prompt.cached_tokens if prompt else 0,
            completion_tokens=self.completion_tokens,
            reasoning_tokens=completion.reasoning_tokens if completion else 0,
            extra={"kvweave": self.kvweave} if self.kvweave else {},
        )


class _Function(Lenient):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(Lenient):
    index: int | None = None
    id: str | None = None
    function: _Function = Field(default_factory=_Function)


class _Message(Lenient):
    content: str | None = None
    reasoning: str | None = Field(
        default=None, validation_alias=AliasChoices("reasoning_content", "reasoning")
    )
    tool_calls: list[_ToolCall] | None = None
    refusal: str | None = None


class _Choice(Lenient):
    message: _Message
    finish_reason: str | None = None


class _Completion(Lenient):
    id: str | None = None
    model: str = ""
    created: int | None = None
    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: UsageFields | None = None


class _ChunkChoice(Lenient):
    delta: _Message = Field(default_factory=_Message)
    finish_reason: str | None = None


class _Chunk(Lenient):
    id: str | None = None
    model: str = ""
    created: int | None = None
    choices: list[_ChunkChoice] = Field(default_factory=list)
    usage: UsageFields | None = None


def finish_reason_of(reason: str | None, *, has_tool_calls: bool) -> FinishReason:
    """The reason in OpenAI's words: other servers have more, and some say "stop" after calls."""
    if has_tool_calls and reason in (None, "stop", "function_call"):
        return "tool_calls"
    for known in get_args(FinishReason):
        if reason == known:
            return known
    return "stop"


def read_completion(body: dict[str, Any]) -> Answer:
    """A whole answer from a `chat.completion` object.

    Raises:
        FormatError: it is not one.
    """
    completion = validated(_Completion, body)
    choice = completion.choices[0]
    calls = choice.message.tool_calls or []
    return Answer(
        id=completion.id or new_id("chatcmpl-"),
        model=completion.model,
        created=completion.created or now(),
        text=choice.message.content or choice.message.refusal or "",
        reasoning=choice.message.reasoning or "",
        finish_reason=finish_reason_of(choice.finish_reason, has_tool_calls=bool(calls)),
        usage=(completion.usage or UsageFields()).usage(),
        tool_calls=tuple(
            ToolCall(
                call.id or new_id("call_"), call.function.name or "", call.function.arguments or ""
            )
            for call in calls
        ),
    )


class ChatStreamReader:
    """`chat.completion.chunk` events to answer events.

    The usage comes after the finish reason, or with it, or not at all: the end of the answer is
    told when the stream ends.
    """

    def __init__(self) -> None:
        self._started = False
        self._done = False
        self._finish_reason: str | None = None
        self._usage = Usage()
        self._calls: dict[int, str] = {}

    def read(self, event: ServerEvent) -> Iterator[AnswerEvent]:
        """What one event says."""
        if not event.data or self._done:
            return
        if event.data.strip() == b"[DONE]":
            yield from self._end()
            return
        body = event_json(event)
        raise_if_error(body)
        chunk = validated(_Chunk, body)
        if not self._started:
            self._started = True
            yield AnswerStart(chunk.id or new_id("chatcmpl-"), chunk.model, chunk.created or now())
        if chunk.usage is not None:
            self._usage = chunk.usage.usage()
        for choice in chunk.choices[:1]:
            yield from self._delta(choice.delta)
            self._finish_reason = choice.finish_reason or self._finish_reason

    def finish(self) -> Iterator[AnswerEvent]:
        """The end, for servers that send no `[DONE]`."""
        if self._done:
            return
        if self._finish_reason is None:
            raise FormatError("the stream ended before the answer did", code="stream_broke_off")
        yield from self._end()

    def _delta(self, delta: _Message) -> Iterator[AnswerEvent]:
        if delta.reasoning:
            yield ReasoningDelta(delta.reasoning)
        text = delta.content or delta.refusal
        if text:
            yield TextDelta(text)
        for position, call in enumerate(delta.tool_calls or []):
            index = position if call.index is None else call.index
            # Some servers repeat id and name in every piece.
            if index not in self._calls:
                self._calls[index] = call.id or new_id("call_")
                yield ToolCallStart(index, self._calls[index], call.function.name or "")
            if call.function.arguments:
                yield ToolCallDelta(index, call.function.arguments)

    def _end(self) -> Iterator[AnswerEvent]:
        if not self._started:
            raise FormatError("the stream holds no answer", code="stream_broke_off")
        self._done = True
        reason = finish_reason_of(self._finish_reason, has_tool_calls=bool(self._calls))
        yield AnswerEnd(reason, self._usage)
