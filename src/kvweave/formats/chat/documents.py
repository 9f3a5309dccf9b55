"""`documents` beside the messages: kvweave's own addition to OpenAI's formats."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from kvweave.formats.chat.request import ChatRequest, DocumentPart
from kvweave.formats.errors import FormatError
from kvweave.formats.parsing import validated


class _Document(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    text: str
    id: str | None = None
    title: str | None = None


class _Documents(BaseModel):
    model_config = ConfigDict(strict=True)

    documents: list[_Document] | None = None


def with_documents(request: ChatRequest, documents: Any) -> ChatRequest:
    """The request with the documents at the start of its last user message.

    Raises:
        FormatError: they are not `[{"text", "id"?, "title"?}, ..]`, or have nowhere to stand.
    """
    found = validated(_Documents, {"documents": documents}).documents
    if not found:
        return request
    users = [message for message in request.messages if message.role == "user"]
    if not users:
        raise FormatError("need a user message to stand in; there is none", "documents")
    parts = [DocumentPart(text=d.text, id=d.id, title=d.title) for d in found]
    users[-1].content = [*parts, *users[-1].parts]
    return request
