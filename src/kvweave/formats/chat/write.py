"""Answers in OpenAI's chat format, as clients get them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvweave.formats.answer import (
    Answer,
    AnswerEnd,
    AnswerEvent,
    AnswerStart,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from kvweave.formats.errors import error_body
from kvweave.formats.sse import encode_event

DONE = b"data: [DONE]\n\n"


def usage_body(usage: Usage) -> dict[str, Any]:
    """`usage` of a chat completion. `cached_tokens` is always there, 0 included."""
    body: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if usage.reasoning_tokens:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return body | dict(usage.extra)


def completion_body(answer: Answer) -> dict[str, Any]:
    """The `chat.completion` object."""
    # An answer that only calls tools has no content, which is not the same as an empty one.
    content = answer.text if answer.text or not answer.tool_calls else None
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.tool_calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.tool_calls
        ]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": answer.finish_reason,
    }
    return {
        "id": answer.id,
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [choice],
        "usage": usage_body(answer.usage),
    }


class ChatStreamWriter:
    """`chat.completion.chunk` objects as server-sent events, up to `[DONE]`.

    With `include_usage` the last object has the usage and no choices, and all others a `usage` of
    null.
    """

    def __init__(self, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._head: dict[str, Any] = {}

    def write(self, event: AnswerEvent) -> Iterator[bytes]:
        """The chunks that `event` makes."""
        match event:
            case AnswerStart(id, model, created):
                self._head = {
                    "id": id,
                    "object": "chat.completion.chunk",
                    "created": created,
                    "model": model,
                }
                yield self._chunk({"role": "assistant", "content": ""})
            case TextDelta(text):
                yield self._chunk({"content": text})
            case ReasoningDelta(text):
                yield self._chunk({"reasoning_content": text})
            case ToolCallStart(index, id, name):
                function = {"name": name, "arguments": ""}
                call = {"index": index, "id": id, "type": "function", "function": function}
                yield self._chunk({"tool_calls": [call]})
            case ToolCallDelta(index, arguments):
                call = {"index": index, "function": {"arguments": arguments}}
                yield self._chunk({"tool_calls": [call]})
            case AnswerEnd(finish_reason, usage):
                yield self._chunk({}, finish_reason)
                if self._include_usage:
                    yield encode_event(self._head | {"choices": [], "usage": usage_body(usage)})
                yield DONE

    def error(self, status: int, message: str, code: str | None) -> bytes:
        """An error object in place of a chunk."""
        return encode_event(error_body("openai", status, message, code=code))

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = self._head | {"choices": [choice]}
        return encode_event(chunk | {"usage": None} if self._include_usage else chunk)
