"""What a format has to offer. With these, any client format meets any backend format."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Protocol

from kvweave.formats.answer import Answer, AnswerEvent
from kvweave.formats.chat.request import ChatRequest
from kvweave.formats.errors import ErrorStyle
from kvweave.formats.sse import ServerEvent

FormatName = Literal["chat", "completions", "responses", "messages"]


class StreamWriter(Protocol):
    """Answer events to the bytes a client gets, each as it comes."""

    def write(self, event: AnswerEvent) -> Iterable[bytes]:
        """Server-sent events for `event`."""

    def error(self, status: int, message: str, code: str | None) -> bytes:
        """The server-sent event that ends a stream which failed."""


class StreamReader(Protocol):
    """A backend's server-sent events to answer events, each as it comes."""

    def read(self, event: ServerEvent) -> Iterable[AnswerEvent]:
        """What `event` says.

        Raises:
            FormatError: it is not what the format allows.
            BackendErrorEvent: it is an error.
        """

    def finish(self) -> Iterable[AnswerEvent]:
        """What is left when the backend's stream has ended.

        Raises:
            FormatError: the stream ended in the middle of the answer.
        """


class ClientFormat(Protocol):
    """A format that clients speak: requests are read, answers written."""

    name: FormatName
    errors: ErrorStyle

    def read_request(self, body: dict[str, Any]) -> ChatRequest:
        """The request in the one form between all formats.

        Raises:
            FormatError: it is not valid, or asks for what only its own kind of backend can do.
        """

    def write_answer(self, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        """The whole answer as a JSON body. `body` is the client's request, which was read."""

    def stream_writer(self, body: dict[str, Any]) -> StreamWriter:
        """A writer for the stream that answers `body`."""


class BackendFormat(Protocol):
    """A format that backends speak: requests are written, answers read."""

    name: FormatName

    def write_request(self, request: ChatRequest) -> dict[str, Any]:
        """The request as a JSON body.

        Raises:
            FormatError: it asks for what this format cannot say.
        """

    def read_answer(self, body: dict[str, Any]) -> Answer:
        """A whole answer.

        Raises:
            FormatError: it is not one.
        """

    def stream_reader(self) -> StreamReader:
        """A reader for one stream."""


class BackendErrorEvent(Exception):
    """A backend's stream carries an error.

    Attributes:
        message: in its own words.
        code: its code or type, if it gives one.
    """

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
