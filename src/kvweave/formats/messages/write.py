"""Answers in Anthropic's Messages format, as clients get them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvweave.formats.answer import (
    Answer,
    AnswerEnd,
    AnswerEvent,
    AnswerStart,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from kvweave.formats.errors import FormatError, error_body
from kvweave.formats.messages.from_chat import arguments_object
from kvweave.formats.sse import encode_event

_STOP_REASONS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


def usage_body(usage: Usage) -> dict[str, Any]:
    """`usage` of a message. To Anthropic, input tokens are those that came from no cache."""
    fresh = usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens
    return {
        "input_tokens": max(0, fresh),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    } | dict(usage.extra)


def message_body(answer: Answer) -> dict[str, Any]:
    """The `message` object."""
    content: list[dict[str, Any]] = []
    if answer.reasoning:
        content.append({"type": "thinking", "thinking": answer.reasoning, "signature": ""})
    if answer.text or not answer.tool_calls:
        content.append({"type": "text", "text": answer.text})
    for call in answer.tool_calls:
        tool_input = arguments_object(call.arguments)
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": tool_input})
    return _message(
        answer.id,
        answer.model,
        content,
        _STOP_REASONS[answer.finish_reason],
        usage_body(answer.usage),
    )


def _message(
    id: str, model: str, content: list[Any], stop_reason: str | None, usage: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": message_id(id),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }


def message_id(id: str) -> str:
    """An id that looks like Anthropic's."""
    return id if id.startswith("msg_") else "msg_" + id.removeprefix("chatcmpl-")


class MessagesStreamWriter:
    """Anthropic's events, from `message_start` to `message_stop`.

    Content blocks come one after the other: a block ends when something of another begins.
    """

    def __init__(self) -> None:
        self._index = -1  # of the current or last block
        self._open: str | None = None  # what the current block holds, None between blocks
        self._call: int | None = None  # the tool call that the current block holds

    def write(self, event: AnswerEvent) -> Iterator[bytes]:
        """The events that `event` makes."""
        match event:
            case AnswerStart(id, model, _, prompt_tokens):
                usage = usage_body(Usage(prompt_tokens=prompt_tokens))
                message = _message(id, model, [], None, usage)
                yield _event("message_start", message=message)
                yield _event("ping")
            case TextDelta(text):
                yield from self._enter("text", {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": text})
            case ReasoningDelta(text):
                block = {"type": "thinking", "thinking": "", "signature": ""}
                yield from self._enter("thinking", block)
                yield self._delta({"type": "thinking_delta", "thinking": text})
            case ToolCallStart(index, id, name):
                yield from self._leave()  # also of the call before
                call = {"type": "tool_use", "id": id, "name": name, "input": {}}
                yield from self._enter("tool_use", call)
                self._call = index
            case ToolCallDelta(index, arguments):
                if index != self._call:
                    raise FormatError("the answer mixes the arguments of several tool calls")
                yield self._delta({"type": "input_json_delta", "partial_json": arguments})
            case AnswerEnd(finish_reason, usage):
                if self._index < 0:  # an empty answer still has a block
                    yield from self._enter("text", {"type": "text", "text": ""})
                yield from self._leave()
                delta = {"stop_reason": _STOP_REASONS[finish_reason], "stop_sequence": None}
                yield _event("message_delta", delta=delta, usage=usage_body(usage))
                yield _event("message_stop")

    def error(self, status: int, message: str, code: str | None) -> bytes:
        """An `error` event."""
        return encode_event(error_body("anthropic", status, message), "error")

    def _enter(self, kind: str, block: dict[str, Any]) -> Iterator[bytes]:
        if self._open == kind:
            return
        yield from self._leave()
        self._open = kind
        self._index += 1
        yield _event("content_block_start", index=self._index, content_block=block)

    def _leave(self) -> Iterator[bytes]:
        if self._open is not None:
            self._open = self._call = None
            yield _event("content_block_stop", index=self._index)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)


def _event(kind: str, **fields: Any) -> bytes:
    return encode_event({"type": kind, **fields}, kind)
