"""The three chat formats of vLLM's server: messages out of a body, and a ticket into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvweave.prompt import TEMPLATE_KWARGS, Message, PromptError, parse_messages

#: Keys that change what the template makes of the messages: such requests are left alone.
_TEMPLATE_KEYS = (
    "tools",
    "functions",
    "chat_template",
    "continue_final_message",
    "reasoning_effort",
    "thinking",
    "reasoning",
    "previous_response_id",
    "prompt",
    "mm_processor_kwargs",
)


def is_plain(body: Mapping[str, Any]) -> bool:
    """Whether the prompt is the template's rendering of the messages and nothing else."""
    return not any(body.get(key) for key in _TEMPLATE_KEYS) and body.get(
        "add_generation_prompt", True
    )


def not_plain_because(body: Mapping[str, Any]) -> str:
    """The key for which `is_plain` says no."""
    return next((key for key in _TEMPLATE_KEYS if body.get(key)), "add_generation_prompt")


def template_kwargs(body: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that the chat template gets, joined as vLLM joins them.

    Raises:
        PromptError: they are not a JSON object.
    """
    given = body.get(TEMPLATE_KWARGS) or {}
    if not isinstance(given, dict):
        raise PromptError("must be an object", TEMPLATE_KWARGS)
    return {**defaults, **{k: v for k, v in given.items() if v not in (None, "auto")}}


def has_document_parts(body: Mapping[str, Any]) -> bool:
    """Whether a message holds a part that says it is a document."""
    messages = body.get("messages") or body.get("input")
    contents = [m.get("content") for m in messages or () if isinstance(m, dict)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return any(isinstance(part, dict) and part.get("type") == "document" for part in parts)


def chat_messages(body: Mapping[str, Any]) -> list[Message]:
    """Of `/v1/chat/completions`. Raises PromptError for what is not text."""
    return parse_messages(body.get("messages"))


def anthropic_messages(body: Mapping[str, Any]) -> list[Message]:
    """Of `/v1/messages`. Raises PromptError for what is not text."""
    raw = body.get("messages")
    system = body.get("system")
    if isinstance(raw, list):
        raw = [_with_text_documents(message) for message in raw]
        if system:
            raw = [{"role": "system", "content": system}, *raw]
    return parse_messages(raw)


def _with_text_documents(message: Any) -> Any:
    """Anthropic's document blocks of plain text, in the form that `parse_messages` knows."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return message
    return message | {"content": [_text_document(part) for part in content]}


def _text_document(part: Any) -> Any:
    source = part.get("source") if isinstance(part, dict) else None
    if not isinstance(source, dict) or source.get("type") != "text":
        return part
    document = {"type": "document", "text": source.get("data")}
    return document | ({"title": part["title"]} if part.get("title") else {})


def response_messages(body: Mapping[str, Any]) -> list[Message]:
    """Of `/v1/responses`. Raises PromptError for what is not text."""
    raw = body.get("input")
    if isinstance(raw, str):
        raw = [{"role": "user", "content": raw}]
    if isinstance(raw, list):
        raw = [_item(item) for item in raw]
        if body.get("instructions"):
            raw = [{"role": "system", "content": body["instructions"]}, *raw]
    return parse_messages(raw)


def _item(item: Any) -> Any:
    """An input item in the format of chat messages; what is no message stays as it is."""
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        return item
    content = item.get("content")
    if isinstance(content, list):
        content = [_part(part) for part in content]
    return {"role": item.get("role"), "content": content}


def _part(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") in ("input_text", "output_text"):
        return {"type": "text", "text": part.get("text")}
    return part


def chat_ticket(body: dict[str, Any], ticket: str) -> None:
    body["messages"] = [{"role": "user", "content": ticket}]


def anthropic_ticket(body: dict[str, Any], ticket: str) -> None:
    body.pop("system", None)
    body["messages"] = [{"role": "user", "content": ticket}]


def response_ticket(body: dict[str, Any], ticket: str) -> None:
    body.pop("instructions", None)
    body["input"] = ticket
