"""Answers in OpenAI's Responses format, as backends give them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

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
    now,
)
from kvweave.formats.base import BackendErrorEvent
from kvweave.formats.errors import FormatError
from kvweave.formats.parsing import validated
from kvweave.formats.reading import Count, Lenient, event_json, raise_if_error
from kvweave.formats.sse import ServerEvent


class _InputDetails(Lenient):
    cached_tokens: Count = 0
    cache_write_tokens: Count = 0


class _OutputDetails(Lenient):
    reasoning_tokens: Count = 0


class UsageFields(Lenient):
    """`usage`."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None
    kvweave: dict[str, Any] | None = None

    def usage(self) -> Usage:
        """The same in the form between all formats."""
        read, written = self.input_tokens_details, self.output_tokens_details
        return Usage(
            prompt_tokens=self.input_tokens,
            cached_tokens=read.cached_tokens if read else 0,
            cache_write_tokens=read.cache_write_tokens if read else 0,
            completion_tokens=self.output_tokens,
            reasoning_tokens=written.reasoning_tokens if written else 0,
            extra={"kvweave": self.kvweave} if self.kvweave else {},
        )


class _Content(Lenient):
    type: str
    text: str = ""
    refusal: str = ""


class _Item(Lenient):
    type: str
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    content: list[_Content] | None = None
    summary: list[_Content] | None = None

    @property
    def text(self) -> str:
        return "".join(part.text or part.refusal for part in self.content or [])

    @property
    def thoughts(self) -> str:
        return self.text or "\n\n".join(part.text for part in self.summary or [])


class _Error(Lenient):
    code: str | None = None
    message: str = "an error without a message"


class _Incomplete(Lenient):
    reason: str | None = None


class _Response(Lenient):
    id: str
    model: str
    created_at: float = 0
    status: str | None = None
    output: list[_Item] = Field(default_factory=list)
    error: _Error | None = None
    incomplete_details: _Incomplete | None = None
    usage: UsageFields | None = None

    def finish_reason(self, *, has_tool_calls: bool) -> FinishReason:
        if self.status == "incomplete":
            reason = self.incomplete_details.reason if self.incomplete_details else None
            return "content_filter" if reason == "content_filter" else "length"
        return "tool_calls" if has_tool_calls else "stop"

    def raise_if_failed(self) -> None:
        if self.status in ("failed", "cancelled"):
            error = self.error or _Error()
            raise BackendErrorEvent(error.message, error.code)


class _Event(Lenient):
    type: str
    output_index: int = 0
    delta: str = ""
    item: _Item | None = None
    response: _Response | None = None


def read_response(body: dict[str, Any]) -> Answer:
    """A whole answer from a `response` object.

    Raises:
        FormatError: it is not one.
        BackendErrorEvent: it failed.
    """
    response = validated(_Response, body)
    response.raise_if_failed()
    calls = tuple(
        ToolCall(item.call_id, item.name, item.arguments)
        for item in response.output
        if item.type == "function_call"
    )
    return Answer(
        id=response.id,
        model=response.model,
        created=int(response.created_at) or now(),
        text="".join(item.text for item in response.output if item.type == "message"),
        reasoning="\n\n".join(i.thoughts for i in response.output if i.type == "reasoning"),
        finish_reason=response.finish_reason(has_tool_calls=bool(calls)),
        usage=(response.usage or UsageFields()).usage(),
        tool_calls=calls,
    )


_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_TEXT = ("response.output_text.delta", "response.refusal.delta")
_REASONING = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")


class ResponsesStreamReader:
    """The events of a response to answer events."""

    def __init__(self) -> None:
        self._started = self._done = False
        self._calls: dict[int, int] = {}  # output index -> index of the tool call
        self._unwritten: set[int] = set()  # calls of which no arguments came yet

    def read(self, event: ServerEvent) -> Iterator[AnswerEvent]:
        """What one event says."""
        if not event.data or self._done or event.data.strip() == b"[DONE]":
            return
        body = event_json(event)
        if body.get("type") == "error":
            error = validated(_Error, body.get("error") or body)
            raise BackendErrorEvent(error.message, error.code)
        raise_if_error(body)
        told = validated(_Event, body)
        if not self._started:
            if told.response is None:
                raise FormatError("the stream does not begin with response.created")
            self._started = True
            created = int(told.response.created_at) or now()
            yield AnswerStart(told.response.id, told.response.model, created)
        if told.type in _TEXT and told.delta:
            yield TextDelta(told.delta)
        elif told.type in _REASONING and told.delta:
            yield ReasoningDelta(told.delta)
        elif told.item is not None and told.item.type == "function_call":
            yield from self._call(told.type, told.output_index, told.item)
        elif told.type == "response.function_call_arguments.delta" and told.delta:
            if told.output_index in self._calls:
                self._unwritten.discard(told.output_index)
                yield ToolCallDelta(self._calls[told.output_index], told.delta)
        elif told.type in _ENDS and told.response is not None:
            yield self._end(told.response)

    def finish(self) -> Iterator[AnswerEvent]:
        """Nothing: a response that never ended broke off."""
        if not self._done:
            raise FormatError("the stream ended before the answer did", code="stream_broke_off")
        return iter(())

    def _call(self, kind: str, at: int, item: _Item) -> Iterator[AnswerEvent]:
        if kind == "response.output_item.added" and at not in self._calls:
            self._calls[at] = len(self._calls)
            self._unwritten.add(at)
            yield ToolCallStart(self._calls[at], item.call_id, item.name)
        elif kind == "response.output_item.done" and at in self._unwritten:
            self._unwritten.discard(at)
            yield ToolCallDelta(self._calls[at], item.arguments or "{}")

    def _end(self, response: _Response) -> AnswerEnd:
        response.raise_if_failed()
        self._done = True
        reason = response.finish_reason(has_tool_calls=bool(self._calls))
        return AnswerEnd(reason, (response.usage or UsageFields()).usage())
