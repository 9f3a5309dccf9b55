"""OpenAI's chat completions as a format of clients and of backends."""

from __future__ import annotations

from typing import Any

from kvweave.formats.answer import Answer
from kvweave.formats.base import FormatName
from kvweave.formats.chat.documents import with_documents
from kvweave.formats.chat.read import ChatStreamReader, read_completion
from kvweave.formats.chat.request import (
    ChatMessage,
    ChatRequest,
    DocumentPart,
    Part,
    TextPart,
)
from kvweave.formats.chat.write import ChatStreamWriter, completion_body
from kvweave.formats.errors import ErrorStyle
from kvweave.formats.parsing import validated


class ChatFormat:
    """Chat completions, both ways."""

    name: FormatName = "chat"
    errors: ErrorStyle = "openai"

    def read_request(self, body: dict[str, Any]) -> ChatRequest:
        """The request, checked."""
        request = validated(ChatRequest, body)
        return with_documents(request, (request.model_extra or {}).pop("documents", None))

    def write_answer(self, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        """The `chat.completion` object."""
        return completion_body(answer)

    def stream_writer(self, body: dict[str, Any]) -> ChatStreamWriter:
        """A writer of `chat.completion.chunk` objects."""
        options = body.get("stream_options") or {}
        return ChatStreamWriter(include_usage=bool(options.get("include_usage")))

    def write_request(self, request: ChatRequest) -> dict[str, Any]:
        """The body for a server that knows OpenAI's format and nothing of kvweave's additions."""
        body = request.model_dump(exclude_none=True, exclude={"messages", "kvweave"})
        body["messages"] = [plain_message(message) for message in request.messages]
        if request.stream:
            body["stream_options"] = {"include_usage": True}
        return body

    def read_answer(self, body: dict[str, Any]) -> Answer:
        """A whole answer."""
        return read_completion(body)

    def stream_reader(self) -> ChatStreamReader:
        """A reader of `chat.completion.chunk` events."""
        return ChatStreamReader()


def plain_message(message: ChatMessage) -> dict[str, Any]:
    """The message in OpenAI's own words: documents are text, marks are left out.

    Content that is one text is a plain string, which every server and chat template takes.
    """
    body = message.model_dump(exclude_none=True, exclude={"content"})
    parts = [_plain_part(part) for part in message.parts]
    if all(part["type"] == "text" for part in parts) and len(parts) <= 1:
        text = parts[0]["text"] if parts else ""
        body["content"] = None if message.tool_calls and not text else text
    else:
        body["content"] = parts
    return body


def document_text(part: DocumentPart) -> str:
    """A document as it stands in a prompt."""
    return f"{part.title}\n{part.text}\n" if part.title else f"{part.text}\n"


def _plain_part(part: Part) -> dict[str, Any]:
    match part:
        case DocumentPart():
            return {"type": "text", "text": document_text(part)}
        case TextPart():
            return {"type": "text", "text": part.text}
        case _:
            return part.model_dump(exclude_none=True)
