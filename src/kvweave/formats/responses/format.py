"""OpenAI's Responses as a format of clients and of backends."""

from __future__ import annotations

from typing import Any

from kvweave.formats.answer import Answer
from kvweave.formats.base import FormatName
from kvweave.formats.chat.request import ChatRequest
from kvweave.formats.errors import ErrorStyle
from kvweave.formats.parsing import validated
from kvweave.formats.responses.from_chat import responses_request
from kvweave.formats.responses.read import ResponsesStreamReader, read_response
from kvweave.formats.responses.request import ResponsesRequest
from kvweave.formats.responses.to_chat import chat_request
from kvweave.formats.responses.write import ResponsesStreamWriter, answer_body


class ResponsesFormat:
    """Responses, both ways."""

    name: FormatName = "responses"
    errors: ErrorStyle = "openai"

    def read_request(self, body: dict[str, Any]) -> ChatRequest:
        """The request as a chat completion."""
        return chat_request(validated(ResponsesRequest, body))

    def write_answer(self, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        """The `response` object."""
        return answer_body(answer, body)

    def stream_writer(self, body: dict[str, Any]) -> ResponsesStreamWriter:
        """A writer of the events of a response."""
        return ResponsesStreamWriter(body)

    def write_request(self, request: ChatRequest) -> dict[str, Any]:
        """The request as Responses take it."""
        return responses_request(request)

    def read_answer(self, body: dict[str, Any]) -> Answer:
        """A whole answer."""
        return read_response(body)

    def stream_reader(self) -> ResponsesStreamReader:
        """A reader of the events of a response."""
        return ResponsesStreamReader()
