"""Servers that answer as providers do, and a server without an engine in front of them."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from kvweave.accounts import Accounts, Database, UsageRecord
from kvweave.api import create_app
from kvweave.config import parse_config
from kvweave.formats import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    Answer,
    ToolCall,
    Usage,
    as_events,
)
from kvweave.providers import Channel, Router

FORMATS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSES,
}
ANSWER = Answer(
    id="chatcmpl-1",
    model="upstream-model",
    created=1_700_000_000,
    text="It was built in 1871.",
    finish_reason="stop",
    usage=Usage(prompt_tokens=120, cached_tokens=100, completion_tokens=9),
)
WITH_TOOLS = Answer(
    id="chatcmpl-2",
    model="upstream-model",
    created=1_700_000_000,
    text="Let me see.",
    finish_reason="tool_calls",
    usage=ANSWER.usage,
    tool_calls=(
        ToolCall("call_1", "read", '{"path": "stones.txt"}'),
        ToolCall("call_2", "list", "{}"),
    ),
)


@dataclass
class Got:
    """One request that a provider got."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)


@dataclass
class StubProvider:
    """Answers with `answer`, in the format of the path that is asked for.

    think: makes the answers in its place.
    script: takes the place of the answers to the first requests, one each.
    """

    answer: Answer = ANSWER
    script: list[Callable[[Request], Response]] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    hold: bool = False
    think: Callable[[], Awaitable[Response]] | None = None
    url: str = ""

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._handle, methods=["GET", "POST"])])

    async def _handle(self, request: Request) -> Response:
        raw = await request.body()
        self.got.append(Got(request.url.path, dict(request.headers), raw))
        if self.think is not None:
            return await self.think()
        if self.script:
            return self.script.pop(0)(request)
        body = json.loads(raw)
        if request.url.path == "/v1/embeddings":
            usage = {"prompt_tokens": 3, "total_tokens": 3}
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]
            return JSONResponse({"object": "list", "model": "e", "data": data, "usage": usage})
        if request.url.path == "/v1/messages/count_tokens":
            return JSONResponse({"input_tokens": 41})
        format = FORMATS.get(request.url.path)
        if format is None:
            return JSONResponse({"error": {"message": "no such path"}}, 404)
        if not body.get("stream"):
            return JSONResponse(format.write_answer(self.answer, body))
        writer = format.stream_writer(body)
        pieces = [p for event in as_events(self.answer) for p in writer.write(event)]
        return StreamingResponse(self._stream(pieces), media_type="text/event-stream")

    async def _stream(self, pieces: list[bytes]) -> AsyncIterator[bytes]:
        try:
            for number, piece in enumerate(pieces):
                while self.hold and number == len(pieces) // 2 and not self.go_on.is_set():
                    await asyncio.sleep(0.01)
                yield piece
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.hung_up.set()
            raise


@contextmanager
def listen(app: ASGIApp) -> Iterator[str]:
    """The app behind a real socket on loopback; gives its base URL without a path."""
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@dataclass
class Records:
    """What was recorded."""

    all: list[UsageRecord] = field(default_factory=list)

    def one(self) -> UsageRecord:
        """The only record, which comes when the answer has been sent."""
        deadline = time.monotonic() + 10
        while not self.all and time.monotonic() < deadline:
            time.sleep(0.01)
        (record,) = self.all
        return record


class RecordedAccounts(Accounts):
    """Also keeps what is recorded."""

    def __init__(self, database: Database, records: Records) -> None:
        super().__init__(database)
        self._records = records

    def record(self, record: UsageRecord) -> None:
        self._records.all.append(record)
        super().record(record)


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def stub(stack) -> Callable[..., StubProvider]:
    """Starts a provider."""

    def start(**fields: Any) -> StubProvider:
        provider = StubProvider(**fields)
        provider.url = stack.enter_context(listen(provider.app))
        return provider

    return start


@pytest.fixture
def closed_url() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


@pytest.fixture
def provider_table() -> Callable[..., dict[str, Any]]:
    """A `[[providers]]` table."""

    def table(url: str, **changes: Any) -> dict[str, Any]:
        return {
            "name": "first",
            "kind": "openai",
            "base_url": url,
            "models": ["m"],
            "max_retries": 0,
            "timeout_sec": 30.0,
        } | changes

    return table


@pytest.fixture
def database(stack, tmp_path) -> Database:
    """Of keys and usage: without keys, unless a test makes one."""
    database = Database.open(str(tmp_path / "accounts.db"))
    stack.callback(database.close)
    return database


@pytest.fixture
def serve(stack, records, database) -> Callable[..., str]:
    """Starts a server without an engine, with these providers; gives its URL."""

    def start(*tables: dict[str, Any], **server: Any) -> str:
        data = {"engine": {"enabled": False}, "providers": list(tables), "server": server}
        config = parse_config(data, source="test")
        channel = Channel(Router.from_config(config.providers))
        accounts = RecordedAccounts(database, records)
        stack.callback(accounts.close)
        accounts.start()
        app = create_app(None, lambda: b"", accounts, channel=channel, limits=config.server)
        return stack.enter_context(listen(app))

    return start
