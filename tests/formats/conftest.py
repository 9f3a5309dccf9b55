"""The official clients' own types, which every answer has to fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import anthropic.types as anthropic_types
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from kvweave.formats import BackendFormat, ClientFormat, EventSplitter

WHOLE: dict[str, TypeAdapter[Any]] = {
    "chat": TypeAdapter(ChatCompletion),
    "completions": TypeAdapter(Completion),
    "messages": TypeAdapter(anthropic_types.Message),
    "responses": TypeAdapter(Response),
}
EVENT: dict[str, TypeAdapter[Any]] = {
    "chat": TypeAdapter(ChatCompletionChunk),
    "completions": TypeAdapter(Completion),
    "messages": TypeAdapter(anthropic_types.RawMessageStreamEvent),
    "responses": TypeAdapter(ResponseStreamEvent),
}


def _parse_stream(name: str, raw: bytes) -> list[Any]:
    """Every event of a stream as the official client's type, checked."""
    parsed = []
    splitter = EventSplitter()
    for event in [*splitter.feed(raw), *splitter.finish()]:
        if event.data == b"[DONE]":
            continue
        body = json.loads(event.data)
        if name in ("messages", "responses"):
            assert event.name == body["type"]
        if body.get("type") == "ping":
            continue
        if name == "completions" and body["choices"]:
            # The client's type wants a reason where OpenAI itself sends null.
            body["choices"][0]["finish_reason"] = body["choices"][0]["finish_reason"] or "stop"
        parsed.append(EVENT[name].validate_python(body))
    return parsed


def _read_stream(format: BackendFormat, raw: bytes, size: int = 0) -> list[Any]:
    """The answer events in a stream, which comes in pieces of `size` bytes."""
    reader, splitter = format.stream_reader(), EventSplitter()
    size = size or len(raw)
    pieces = [raw[start : start + size] for start in range(0, len(raw), size)]
    events: list[Any] = []
    for piece in pieces:
        for event in splitter.feed(piece):
            events += reader.read(event)
    for event in splitter.finish():
        events += reader.read(event)
    return [*events, *reader.finish()]


def _write_stream(format: ClientFormat, events: Iterable[Any], body: dict[str, Any]) -> bytes:
    """A stream in `format`."""
    writer = format.stream_writer(body)
    return b"".join(piece for event in events for piece in writer.write(event))


@pytest.fixture
def check_whole() -> Callable[[str, dict[str, Any]], Any]:
    """A whole answer as the official client's type, checked."""
    return lambda name, body: WHOLE[name].validate_python(body)


@pytest.fixture
def parse_stream() -> Callable[[str, bytes], list[Any]]:
    """Every event of a stream as the official client's type, checked."""
    return _parse_stream


@pytest.fixture
def read_stream() -> Callable[..., list[Any]]:
    """The answer events in a stream, which comes in pieces of `size` bytes."""
    return _read_stream


@pytest.fixture
def write_stream() -> Callable[..., bytes]:
    """A stream in a format."""
    return _write_stream
