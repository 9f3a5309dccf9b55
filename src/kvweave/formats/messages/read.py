"""Answers in Anthropic's Messages format, as backends give them."""

from __future__ import annotations

import json
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
    new_id,
    now,
)
from kvweave.formats.errors import FormatError
from kvweave.formats.parsing import validated
from kvweave.formats.reading import Count, Lenient, event_json, raise_if_error
from kvweave.formats.sse import ServerEvent

_FINISH_REASONS: dict[str | None, FinishReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class UsageFields(Lenient):
    """`usage`; in a stream the last one wins, field by field."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_input_tokens: Count = 0
    cache_creation_input_tokens: Count = 0
    kvweave: dict[str, Any] | None = None

    def usage(self) -> Usage:
        """The same in the form between all formats."""
        cached, written = self.cache_read_input_tokens, self.cache_creation_input_tokens
        return Usage(
            prompt_tokens=self.input_tokens + cached + written,
            cached_tokens=cached,
            cache_write_tokens=written,
            completion_tokens=self.output_tokens,
            extra={"kvweave": self.kvweave} if self.kvweave else {},
        )


class _Block(Lenient):
    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = Field(default_factory=dict)


class _Message(Lenient):
    id: str
    model: str
    content: list[_Block]
    stop_reason: str | None = None
    usage: UsageFields = Field(default_factory=UsageFields)


class _Delta(Lenient):
    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Event(Lenient):
    type: str
    index: int = 0
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta = Field(default_factory=_Delta)
    usage: dict[str, Any] | None = None


def read_message(body: dict[str, Any]) -> Answer:
    """A whole answer from a `message` object.

    Raises:
        FormatError: it is not one.
    """
    message = validated(_Message, body)
    return Answer(
        id=message.id,
        model=message.model,
        created=now(),
        text="".join(block.text for block in message.content if block.type == "text"),
        reasoning="".join(block.thinking for block in message.content),
        finish_reason=_FINISH_REASONS.get(message.stop_reason, "stop"),
        usage=message.usage.usage(),
        tool_calls=tuple(
            ToolCall(block.id, block.name, json.dumps(block.input, ensure_ascii=False))
            for block in message.content
            if block.type == "tool_use"
        ),
    )


class MessagesStreamReader:
    """Anthropic's events to answer events. Server tools' blocks are left out."""

    def __init__(self) -> None:
        self._usage: dict[str, Any] = {}
        self._stop_reason: str | None = None
        self._started = self._done = False
        self._calls: dict[int, int] = {}  # index of a block -> index of the tool call
        self._unwritten: dict[int, str] = {}  # input that came with the start of a block

    def read(self, event: ServerEvent) -> Iterator[AnswerEvent]:
        """What one event says."""
        if not event.data or self._done:
            return
        body = event_json(event)
        raise_if_error(body)
        told = validated(_Event, body)
        if told.type == "message_start" and told.message is not None:
            self._started = True
            self._usage |= body["message"].get("usage") or {}
            usage = told.message.usage.usage()
            yield AnswerStart(
                told.message.id or new_id("msg_"), told.message.model, now(), usage.prompt_tokens
            )
        elif not self._started:
            if told.type != "ping":
                raise FormatError("the stream does not begin with message_start")
        elif told.type == "content_block_start" and told.content_block is not None:
            yield from self._block(told.index, told.content_block)
        elif told.type == "content_block_delta":
            yield from self._delta(told.index, told.delta)
        elif told.type == "content_block_stop":
            yield from self._block_end(told.index)
        elif told.type == "message_delta":
            self._stop_reason = told.delta.stop_reason or self._stop_reason
            self._usage |= {k: v for k, v in (told.usage or {}).items() if v is not None}
        elif told.type == "message_stop":
            yield self._end()

    def finish(self) -> Iterator[AnswerEvent]:
        """The end, for servers that send no `message_stop`."""
        if self._done:
            return
        if self._stop_reason is None:
            raise FormatError("the stream ended before the answer did", code="stream_broke_off")
        yield self._end()

    def _block(self, index: int, block: _Block) -> Iterator[AnswerEvent]:
        if block.type == "tool_use":
            self._calls[index] = len(self._calls)
            yield ToolCallStart(self._calls[index], block.id or new_id("toolu_"), block.name)
            if block.input:
                self._unwritten[index] = json.dumps(block.input, ensure_ascii=False)
        elif block.type == "text" and block.text:
            yield TextDelta(block.text)
        elif block.type == "thinking" and block.thinking:
            yield ReasoningDelta(block.thinking)

    def _delta(self, index: int, delta: _Delta) -> Iterator[AnswerEvent]:
        if delta.type == "text_delta" and delta.text:
            yield TextDelta(delta.text)
        elif delta.type == "thinking_delta" and delta.thinking:
            yield ReasoningDelta(delta.thinking)
        elif delta.type == "input_json_delta" and delta.partial_json and index in self._calls:
            self._unwritten[index] = ""
            yield ToolCallDelta(self._calls[index], delta.partial_json)

    def _block_end(self, index: int) -> Iterator[AnswerEvent]:
        if index not in self._calls:
            return
        # A tool without arguments gets none in pieces; elsewhere that is written as {}.
        whole = self._unwritten.pop(index, "{}")
        if whole:
            yield ToolCallDelta(self._calls[index], whole)

    def _end(self) -> AnswerEnd:
        self._done = True
        reason = _FINISH_REASONS.get(self._stop_reason, "stop")
        return AnswerEnd(reason, validated(UsageFields, self._usage).usage())
