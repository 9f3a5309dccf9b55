"""Chat messages and documents as plain objects, and how to get them from JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from kvweave.prompt.errors import PromptError

MessageRole = Literal["system", "user", "assistant", "tool"]

# OpenAI's newer name for system messages, which no open model's chat template knows.
_ROLE_ALIASES = {"developer": "system"}


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message.

    Attributes:
        role: who speaks.
        content: one string, or text parts that make up the content when joined verbatim. In user
            and tool messages each part but the last is a chunk.
    """

    role: MessageRole
    content: str | tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """The content as text parts."""
        return (self.content,) if isinstance(self.content, str) else self.content


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
    for key in ("tool_calls", "function_call"):
        if fields.get(key):
            raise PromptError("tool calls are not supported", f"{path}.{key}")
    content = _parse_content(fields.get("content"), f"{path}.content")
    return Message(cast(MessageRole, role), content)


def _parse_content(raw: object, path: str) -> str | tuple[str, ...]:
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, list):
        raise PromptError(f"must be a string or a list of text parts, not {_kind(raw)}", path)
    if not raw:
        raise PromptError("must hold at least one text part", path)
    return tuple(_parse_part(part, f"{path}[{index}]") for index, part in enumerate(raw))


def _parse_part(raw: object, path: str) -> str:
    fields = _object(raw, path)
    kind = fields.get("type")
    if kind != "text":
        raise PromptError(f"only 'text' parts are supported, not {_shown(kind)}", f"{path}.type")
    return _string(fields, "text", path)


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
