"""Clients that are slow, by accident or on purpose, hold no connection for ever."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from kvweave.api import create_app
from kvweave.api.protocol import MAX_HEADER_BYTES
from kvweave.config import ServerConfig

CHAT = "/v1/chat/completions"
ANSWER_BYTES = 30_000_000


@pytest.fixture
def limits() -> ServerConfig:
    return ServerConfig(client_timeout_sec=0.5)


@pytest.fixture
def app(local, accounts, limits):
    return create_app(local, lambda: b"x" * ANSWER_BYTES, accounts, limits=limits)


@pytest.fixture
def connect(base_url) -> Iterator[Callable[[], socket.socket]]:
    """Opens connections to the server."""
    opened = []

    def connect() -> socket.socket:
        address = urlsplit(base_url)
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(60)
        line.connect((address.hostname, address.port))
        opened.append(line)
        return line

    yield connect
    for line in opened:
        line.close()


def post(body: bytes, path: str = CHAT, length: int | None = None) -> bytes:
    length = len(body) if length is None else length
    return b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (
        path.encode(),
        length,
        body,
    )


def dribble(line: socket.socket, data: bytes) -> bytes:
    """Sends a byte now and then for as long as the server takes it; gives all that came back."""
    got = b""
    for byte in data * 1000:
        if select.select([line], [], [], 0.05)[0]:
            break
        line.send(bytes([byte]))
    else:
        raise AssertionError("the server listens without end")
    return got + read_all(line)


def read_all(line: socket.socket) -> bytes:
    """All until the server closes."""
    got = b""
    try:
        while piece := line.recv(65536):
            got += piece
    except ConnectionResetError:  # it closed while something of ours was on the way
        pass
    return got


def read_answer(line: socket.socket) -> bytes:
    """One answer with a length, after which the connection stays open."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += line.recv(1)
    (length,) = [
        int(header.split(b":")[1])
        for header in got.split(b"\r\n")
        if header.lower().startswith(b"content-length")
    ]
    for _ in range(length):
        got += line.recv(1)
    return got


def error_of(answer: bytes, status: int) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"connection: close" in head
    return json.loads(body)["error"]


def test_headers_that_dribble_in_are_408(connect):
    error = error_of(dribble(connect(), b"GET /v1/models HTTP/1.1\r\n" + b"x-a: b\r\n"), 408)
    assert error["code"] == "request_timeout"
    assert error["message"] == "The headers were not complete after 0.5 s."


def test_a_connection_on_which_nothing_comes_is_closed(connect):
    assert read_all(connect()) == b""


def test_the_headers_of_a_later_request_have_as_long(connect):
    line = connect()
    line.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    assert read_answer(line).startswith(b"HTTP/1.1 200")
    error_of(dribble(line, b"GET /health HTTP/1.1\r\n" + b"x-a: b\r\n"), 408)


def test_line_ends_between_requests_keep_no_connection_open(connect):
    line = connect()
    line.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    assert read_answer(line).startswith(b"HTTP/1.1 200")
    line.sendall(b"\r\n\r\n")
    assert read_all(line) == b""


def test_headers_without_end_are_refused(connect):
    line = connect()
    line.sendall(b"GET /health HTTP/1.1\r\n")
    try:
        for _ in range(2 * MAX_HEADER_BYTES // 1000):
            line.sendall(b"x-a: %s\r\n" % (b"b" * 1000))
            time.sleep(0.001)
    except OSError:  # closed meanwhile
        return
    answer = read_all(line)
    assert not answer or error_of(answer, 431)["code"] == "headers_too_large"


def test_a_body_that_dribbles_in_is_408(connect, engine):
    line = connect()
    line.sendall(post(b"", length=10**6))
    error = error_of(dribble(line, b'{"model": "x", '), 408)
    assert error["code"] == "request_timeout"
    assert "too slowly" in error["message"]
    assert engine.prompts == []


def test_the_rest_of_a_body_that_nobody_wants_is_not_waited_for(connect):
    line = connect()
    line.sendall(post(b"", "/v1/nowhere", length=10**6))
    assert b"404 Not Found" in read_answer(line)
    assert dribble(line, b"x") == b""


def test_a_body_that_takes_long_but_comes_steadily_is_read(connect, chat):
    line = connect()
    body = json.dumps(chat()).encode() + b" " * 200_000
    line.sendall(post(b"", length=len(body)))
    for start in range(0, len(body), 10_000):
        line.sendall(body[start : start + 10_000])
        time.sleep(0.05)
    assert read_answer(line).startswith(b"HTTP/1.1 200")


def test_an_answer_may_take_as_long_as_it_wants(connect, engine, chat):
    engine.first_delay_s = 2
    line = connect()
    line.sendall(post(json.dumps(chat()).encode()))
    assert read_answer(line).startswith(b"HTTP/1.1 200")


def test_an_answer_on_the_way_is_not_mixed_with_the_refusal_of_the_next_request(
    connect, engine, chat
):
    engine.first_delay_s = 2
    line = connect()
    line.sendall(post(json.dumps(chat()).encode()) + b"GET /health HTT")
    assert b"1871" in read_answer(line)
    error_of(read_all(line), 408)


def test_a_client_that_never_takes_its_answer_is_cut_off(base_url, connect):
    before = open_sockets()
    line = connect()
    line.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
    line.recv(1)
    assert open_sockets() == before + 2  # this end, and the server's
    deadline = time.monotonic() + 60
    while open_sockets() > before + 1:
        assert time.monotonic() < deadline, "the server still waits"
        time.sleep(0.05)


def open_sockets() -> int:
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
    return count


def test_a_client_that_takes_its_answer_slowly_gets_all_of_it(connect):
    line = connect()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
    line.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    got = 0
    while piece := line.recv(2**19):
        got += len(piece)
        time.sleep(0.02)
    assert got > ANSWER_BYTES
