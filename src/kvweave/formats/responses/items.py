"""The objects that answers in OpenAI's Responses format consist of."""

from __future__ import annotations

from typing import Any

from kvweave.formats.answer import FinishReason, Usage, new_id
from kvweave.formats.parsing import json_object

_ECHOED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""What a response repeats of its request, each with the value where the request says nothing."""


def response_body(
    id: str,
    created: int,
    model: str,
    body: dict[str, Any],
    *,
    status: str,
    output: list[dict[str, Any]],
    usage: Usage | None = None,
    error: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The `response` object. `body` is the request it answers."""
    echoed = {
        key: default if body.get(key) is None else body[key] for key, default in _ECHOED.items()
    }
    incomplete = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {
        "id": response_id(id),
        "object": "response",
        "created_at": created,
        "status": status,
        "background": False,
        "error": error,
        "incomplete_details": incomplete,
        "model": model,
        "output": output,
        "store": False,
        "usage": usage_body(usage) if usage is not None else None,
        **echoed,
    }


def response_id(id: str) -> str:
    """An id that looks like those of Responses."""
    return id if id.startswith("resp_") else "resp_" + id.removeprefix("chatcmpl-")


def status_of(finish_reason: FinishReason) -> str:
    """`completed`, or `incomplete` where the answer was cut."""
    return "incomplete" if finish_reason == "length" else "completed"


def usage_body(usage: Usage) -> dict[str, Any]:
    """`usage` of a response. `cached_tokens` is always there, 0 included."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    } | dict(usage.extra)


def text_part(text: str) -> dict[str, Any]:
    """Text of the answer."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(status: str, text: str | None, id: str = "") -> dict[str, Any]:
    """The message of the answer; None for the text while there is none yet."""
    return {
        "id": id or new_id("msg_"),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [] if text is None else [text_part(text)],
    }


def reasoning_item(text: str | None, id: str = "") -> dict[str, Any]:
    """The model's thoughts."""
    content = [] if text is None else [{"type": "reasoning_text", "text": text}]
    return {"id": id or new_id("rs_"), "type": "reasoning", "summary": [], "content": content}


def call_item(
    call_id: str, name: str, arguments: str, *, status: str, custom: bool, id: str = ""
) -> dict[str, Any]:
    """A tool call. Those of `custom` tools carry free text in place of arguments."""
    item = {"id": id or new_id("fc_"), "call_id": call_id, "name": name, "status": status}
    if custom:
        return {"type": "custom_tool_call", "input": free_text(arguments), **item}
    return {"type": "function_call", "arguments": arguments, **item}


def free_text(arguments: str) -> str:
    """The text for a tool that takes free text, out of the arguments the model wrote."""
    text = (json_object(arguments) or {}).get("input")
    return text if isinstance(text, str) else arguments
