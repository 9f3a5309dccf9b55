"""Clients that offer to go over to HTTP/2, as Java's does with every first request."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import pytest

BODY = json.dumps({"model": "org/words", "messages": [{"role": "user", "content": "hi"}]}).encode()
OFFER = (
    b"POST /v1/chat/completions HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Content-Length: %d\r\nHost: x\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
    b"Upgrade: h2c\r\nContent-Type: application/json\r\n\r\n" % len(BODY)
)


@pytest.mark.parametrize("cut", [0, 7, 130, len(OFFER), len(OFFER) + 5])
def test_the_offer_is_declined_and_the_request_answered(base_url: str, cut: int) -> None:
    address = urlsplit(base_url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as line:
        for _ in range(2):  # the connection stays usable
            data = OFFER + BODY
            for piece in (data[:cut], data[cut:]):
                if piece:
                    line.sendall(piece)
            head, _, body = read_answer(line)
            assert head.startswith(b"HTTP/1.1 200 "), head
            assert json.loads(body)["object"] == "chat.completion"


def read_answer(line: socket.socket) -> tuple[bytes, bytes, bytes]:
    got = b""
    while b"\r\n\r\n" not in got:
        got += line.recv(65536)
    head, gap, body = got.partition(b"\r\n\r\n")
    fields = dict(field.lower().split(b": ", 1) for field in head.split(b"\r\n")[1:])
    while len(body) < int(fields[b"content-length"]):
        body += line.recv(65536)
    return head, gap, body
