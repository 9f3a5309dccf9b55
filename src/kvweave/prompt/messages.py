"""Chat messages and documents as plain objects, and how to get them from JSON values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from kvweave.prompt.errors import PromptError

MessageRole = Literal["system", "user", "assistant", "tool"]

# OpenAI's newer name for system messages, which no open model's chat template knows.
_ROLE_ALIASES = {"developer": "system"}


@dataclass(frozen=True, slots=True)
class Document:
    """One retrieved document.

    Attributes:
        text: the passage.
        id: what the client calls it; None lets a digest of the text stand for it.
        title: put on a line of its own before the text.
    """

    text: str
    id: str | None = None
    title: str | None = None

    @property
    def chunk_text(self) -> str:
        """The text this document has in a prompt; empty if it has no text."""
        if not self.text:
            return ""
        return f"{self.title}\n{self.text}\n" if self.title else f"{self.text}\n"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function the assistant called.

    Attributes:
        name: of the function.
        arguments: by name, as JSON values.
        id: what the tool message with the result refers to.
    """

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message.

    Attributes:
        role: who speaks.
        content: one string, or parts that make up the content when joined verbatim. In user and
            tool messages each document is a chunk, and each text but the last.
        marked: whether the last text is marked as a chunk too.
        tool_calls: what an assistant's message called.
        tool_call_id: the call that a tool message answers.
    """

    role: MessageRole
    content: str | tuple[str | Document, ...]
    marked: bool = False
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None

    @property
    def parts(self) -> tuple[str | Document, ...]:
        """The content as parts."""
        return (self.content,) if isinstance(self.content, str) else self.content

    @property
    def texts(self) -> Iterator[str]:
        """The text of each part."""
        for part in self.parts:
            yield part if isinstance(part, str) else part.chunk_text


def parse_messages(raw: object) -> list[Message]:
    """Messages from JSON values in OpenAI's chat format.

    Keys that say nothing about the text (`name`, `tool_call_id`, `refusal`, ...) are ignored.

    Raises:
        PromptError: `raw` is not a non-empty list of messages with text content.
    """
    if not isinstance(raw, list):
        raise PromptError(f"must be a list of messages, not {_kind(raw)}", "messages")
    if not raw:
        raise PromptError("must hold at least one message", "messages")
    return [_parse_message(item, f"messages[{index}]") for index, item in enumerate(raw)]


def parse_documents(raw: object, path: str = "documents") -> list[Document]:
    """Documents from JSON values `[{"id"?, "title"?, "text"}, ...]`; None gives none.

    Raises:
        PromptError: `raw` is not a list of such objects.
    """
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise PromptError(f"must be a list of documents, not {_kind(raw)}", path)
    return [_parse_document(item, f"{path}[{index}]") for index, item in enumerate(raw)]


def _parse_message(raw: object, path: str) -> Message:
    fields = _object(raw, path)
    role = fields.get("role")
    role = _ROLE_ALIASES.get(role, role) if isinstance(role, str) else role
    if role not in get_args(MessageRole):
        allowed = ", ".join(get_args(MessageRole))
        raise PromptError(f"must be one of {allowed}, not {_shown(role)}", f"{path}.role")
    if fields.get("function_call"):
        raise PromptError("is not supported; send tool_calls", f"{path}.function_call")
    calls = _parse_tool_calls(fields.get("tool_calls"), f"{path}.tool_calls")
    raw_content = fields.get("content")
    if calls and raw_content is None:
        raw_content = ""
    content = _parse_content(raw_content, f"{path}.content")
    return Message(
        cast(MessageRole, role),
        content,
        marked=_is_marked(raw_content),
        tool_calls=calls,
        tool_call_id=_optional_string(fields, "tool_call_id", path),
    )


def _parse_tool_calls(raw: object, path: str) -> tuple[ToolCall, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise PromptError(f"must be a list of tool calls, not {_kind(raw)}", path)
    return tuple(_parse_tool_call(call, f"{path}[{index}]") for index, call in enumerate(raw))


def _parse_tool_call(raw: object, path: str) -> ToolCall:
    fields = _object(raw, path)
    function = _object(fields.get("function"), f"{path}.function")
    text = _string(function, "arguments", f"{path}.function")
    try:
        arguments = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise PromptError("must be a JSON object, as text", f"{path}.function.arguments")
    name = _string(function, "name", f"{path}.function")
    return ToolCall(name, arguments, _optional_string(fields, "id", path))


def _parse_content(raw: object, path: str) -> str | tuple[str | Document, ...]:
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, list):
        raise PromptError(f"must be a string or a list of text parts, not {_kind(raw)}", path)
    if not raw:
        raise PromptError("must hold at least one text part", path)
    return tuple(_parse_part(part, f"{path}[{index}]") for index, part in enumerate(raw))


def _parse_part(raw: object, path: str) -> str | Document:
    fields = _object(raw, path)
    kind = fields.get("type")
    if kind == "document":
        return _parse_document(fields, path)
    if kind != "text":
        raise PromptError(
            f"only 'text' and 'document' parts are supported, not {_shown(kind)}", f"{path}.type"
        )
    return _string(fields, "text", path)


def _is_marked(content: object) -> bool:
    """Whether the last text of checked content has a `cache_control`."""
    parts = content if isinstance(content, list) else []
    texts = [part for part in parts if part["type"] == "text"]
    return bool(texts and texts[-1].get("cache_control"))


def _parse_document(raw: object, path: str) -> Document:
    fields = _object(raw, path)
    return Document(
        text=_string(fields, "text", path),
        id=_optional_string(fields, "id", path),
        title=_optional_string(fields, "title", path),
    )


def _object(raw: object, path: str) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise PromptError(f"must be an object, not {_kind(raw)}", path)
    return raw


def _string(fields: Mapping[str, Any], key: str, path: str) -> str:
    if key not in fields:
        raise PromptError("is missing", f"{path}.{key}")
    value = fields[key]
    if not isinstance(value, str):
        raise PromptError(f"must be a string, not {_kind(value)}", f"{path}.{key}")
    return value


def _optional_string(fields: Mapping[str, Any], key: str, path: str) -> str | None:
    return None if fields.get(key) is None else _string(fields, key, path)


def _kind(value: object) -> str:
    """What JSON calls the type of `value`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, Mapping) else "a list"


def _shown(value: object) -> str:
    """`value` in an error message: short strings verbatim, anything else by its type."""
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "...")
    return _kind(value)
