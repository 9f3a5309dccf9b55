"""Anthropic's Messages as a format of clients and of backends."""

from __future__ import annotations

from typing import Any

from kvweave.formats.answer import Answer
from kvweave.formats.base import FormatName
from kvweave.formats.chat.request import ChatRequest
from kvweave.formats.errors import ErrorStyle
from kvweave.formats.messages.from_chat import messages_request
from kvweave.formats.messages.read import MessagesStreamReader, read_message
from kvweave.formats.messages.request import CountTokensRequest, MessagesRequest
from kvweave.formats.messages.to_chat import chat_request, prompt_of
from kvweave.formats.messages.write import MessagesStreamWriter, message_body
from kvweave.formats.parsing import validated


class MessagesFormat:
    """Anthropic's Messages, both ways."""

    name: FormatName = "messages"
    errors: ErrorStyle = "anthropic"

    def read_request(self, body: dict[str, Any]) -> ChatRequest:
        """The request as a chat completion."""
        return chat_request(validated(MessagesRequest, body))

    def read_count_request(self, body: dict[str, Any]) -> ChatRequest:
        """What `count_tokens` is to count."""
        return prompt_of(validated(CountTokensRequest, body))

    def write_answer(self, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        """The `message` object."""
        return message_body(answer)

    def stream_writer(self, body: dict[str, Any]) -> MessagesStreamWriter:
        """A writer of Anthropic's events."""
        return MessagesStreamWriter()

    def write_request(self, request: ChatRequest) -> dict[str, Any]:
        """The request as Anthropic takes it."""
        return messages_request(request)

    def read_answer(self, body: dict[str, Any]) -> Answer:
        """A whole answer."""
        return read_message(body)

    def stream_reader(self) -> MessagesStreamReader:
        """A reader of Anthropic's events."""
        return MessagesStreamReader()
