"""HTTP with clients that send or take too slowly, for which uvicorn would wait without end."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import pydantic_core
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kvweave.api.upgrade import DecliningParser
from kvweave.formats import error_body

MAX_HEADER_BYTES = 64 * 2**10
"""Request line and headers together; the parser alone would take any number."""


class PatientHttpProtocol(HttpToolsProtocol):
    """A connection whose client has `timeout_s` for each thing it has to do.

    These are: to send the headers of a request (else 408), to send the rest of a body that nobody
    wants any more, and to take something of an answer that is waiting. How long a body may take
    that is wanted, and a stream, is for the application to say.
    """

    timeout_s = 60.0

    _deadline: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _in_message = False
    _in_headers = False
    _header_bytes = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.parser = DecliningParser(self)  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._restart_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        if self._taking is not None:
            self._taking.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._header_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_headers and self._header_bytes > MAX_HEADER_BYTES:
            self._refuse(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"The headers are larger than {MAX_HEADER_BYTES // 1024} kB.",
                "headers_too_large",
            )
        elif self._deadline is None and not self._is_answering():
            self._restart_deadline()  # any byte has ended uvicorn's own wait for a next request

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_message = self._in_headers = True
        self._header_bytes = 0

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._clear_deadline()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_message = False
        super().on_message_complete()
        if not self._is_answering():
            self._restart_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_message and not self._is_answering():
            self._restart_deadline()
        if self._taking is None and (waiting := self.transport.get_write_buffer_size()):
            self._taking = self.loop.call_later(self.timeout_s, self._check_taken, waiting)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _restart_deadline(self) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(self.timeout_s, self._is_late)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _is_late(self) -> None:
        self._deadline = None
        if self.transport.is_closing() or self._is_answering():
            return
        if self._in_headers:
            self._refuse(
                HTTPStatus.REQUEST_TIMEOUT,
                f"The headers were not complete after {self.timeout_s:g} s.",
                "request_timeout",
            )
        else:
            self.transport.close()

    def _check_taken(self, waiting: int) -> None:
        """Gives up on a client that has taken nothing since `waiting` bytes were."""
        self._taking = None
        left = self.transport.get_write_buffer_size()
        if left >= waiting and not self._is_answering():
            self.transport.abort()  # closing would wait for the client
        elif left:
            self._taking = self.loop.call_later(self.timeout_s, self._check_taken, left)

    def _refuse(self, status: HTTPStatus, message: str, code: str) -> None:
        self._clear_deadline()
        body = pydantic_core.to_json(error_body("openai", status, message, code=code))
        self.transport.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%s" % (status, status.phrase.encode(), len(body), body)
        )
        self.transport.close()


def protocol_with(timeout_s: float) -> type[PatientHttpProtocol]:
    """The protocol, with this much patience."""
    return type("PatientHttpProtocol", (PatientHttpProtocol,), {"timeout_s": timeout_s})
