"""Offers to go over to another protocol, declined: the request is answered as HTTP/1.1.

Java's HTTP client offers HTTP/2 (`Upgrade: h2c`) with every first request. The parser stops after
the headers of such a request, and its body would be lost.
"""

from __future__ import annotations

from typing import Any

import httptools


class DecliningParser:
    """httptools' parser, which goes on after an offer.

    The one that has stopped is replaced with a new one, which is told of the same request with the
    offer left out; its callbacks up to the end of the headers are not passed on, since they have
    been made already.
    """

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._framing = b""
        self._parser = self._new_parser()
        self._telling_again = False

    def feed_data(self, data: bytes) -> None:
        """Parse `data`. Raises httptools.HttpParserError."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
                method = self._parser.get_method()
                self._parser = self._new_parser()
                self._telling_again = True
                self._parser.feed_data(b"%s / HTTP/1.1\r\n%s\r\n" % (method, self._framing))
                continue
            return

    def get_method(self) -> bytes:
        method: bytes = self._parser.get_method()
        return method

    def get_http_version(self) -> str:
        version: str = self._parser.get_http_version()
        return version

    def should_keep_alive(self) -> bool:
        return bool(self._parser.should_keep_alive())

    def should_upgrade(self) -> bool:
        return False

    def _new_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return parser

    # -- what the parser calls ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if not self._telling_again:
            self._framing = b""
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._telling_again:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._telling_again:
            return
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._framing += b"%s: %s\r\n" % (name, value)
        self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._telling_again:
            self._telling_again = False
        else:
            self._protocol.on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._protocol.on_body(body)

    def on_message_complete(self) -> None:
        if not self._parser.should_upgrade():
            self._protocol.on_message_complete()
