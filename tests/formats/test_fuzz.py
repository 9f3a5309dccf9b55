"""Whatever comes, a converter converts it or says what is wrong; what it converts comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvweave.formats import (
    BACKEND_FORMATS,
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    Answer,
    AnswerBuilder,
    BackendErrorEvent,
    BrokenEventStream,
    EventSplitter,
    FormatError,
    ToolCall,
    Usage,
    as_events,
)

CLIENTS = [CHAT, COMPLETIONS, MESSAGES, RESPONSES]
fuzz = settings(deadline=None)

TEXT = st.text(max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    "model messages role content type text source image_url url data title tool_calls function name"
    " arguments id input output call_id tool_use_id tools parameters input_schema choices delta"
    " message usage index finish_reason stop_reason content_block response item prompt system"
    " instructions max_tokens stream stop stop_sequences tool_choice format response_format".split()
)
VALUES = st.sampled_from(
    "user assistant system tool developer text document image tool_use tool_result thinking message"
    " function_call function_call_output input_text output_text base64 content function auto any"
    " message_start content_block_start content_block_delta message_delta message_stop"
    " response.created response.completed response.output_item.added json_schema".split()
)
SHAPED = st.recursive(
    VALUES | st.integers(0, 5) | st.none() | st.booleans() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)
OBJECT = st.dictionaries(KEYS | TEXT, SHAPED | JSON, max_size=8)
ANSWER = st.builds(
    Answer,
    id=st.just("chatcmpl-1"),
    model=TEXT,
    created=st.integers(1, 2**40),
    text=TEXT,
    finish_reason=st.sampled_from(["stop", "length"]),
    usage=st.builds(
        lambda prompt, cached, completion: Usage(
            prompt_tokens=prompt + cached, cached_tokens=cached, completion_tokens=completion
        ),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
    ),
    reasoning=TEXT,
    tool_calls=st.lists(
        st.builds(
            ToolCall,
            id=st.text("abc_", min_size=1, max_size=5),
            name=st.text("abc_", min_size=1, max_size=5),
            arguments=st.dictionaries(TEXT, JSON, max_size=3).map(json.dumps),
        ),
        max_size=3,
    ).map(tuple),
)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda f: f.name)
@fuzz
@given(body=OBJECT)
def test_a_request_is_converted_to_every_format_or_refused(client, body):
    try:
        request = client.read_request(body)
    except FormatError as error:
        assert error.message
        return
    for backend in BACKEND_FORMATS:
        try:
            json.dumps(backend.write_request(request))
        except FormatError as error:
            assert error.message


@pytest.mark.parametrize("backend", BACKEND_FORMATS, ids=lambda f: f.name)
@fuzz
@given(body=OBJECT)
def test_a_backends_answer_is_read_or_refused(backend, body):
    try:
        answer = backend.read_answer(body)
    except (FormatError, BackendErrorEvent):
        return
    for client in CLIENTS:
        json.dumps(client.write_answer(answer, {"model": "m", "input": "x"}))


@pytest.mark.parametrize("backend", BACKEND_FORMATS, ids=lambda f: f.name)
@fuzz
@given(events=st.lists(OBJECT.map(json.dumps).map(str.encode) | st.binary(max_size=20), max_size=5))
def test_a_backends_stream_is_read_or_refused(backend, events):
    raw = b"".join(b"data: " + event + b"\n\n" for event in events)
    reader, writers = backend.stream_reader(), [c.stream_writer({"model": "m"}) for c in CLIENTS]
    splitter = EventSplitter()
    try:
        told = [t for event in splitter.feed(raw) for t in reader.read(event)]
        told += reader.finish()
        for writer in writers:
            for event in told:
                b"".join(writer.write(event))
    except (FormatError, BackendErrorEvent):
        return


@pytest.mark.parametrize("backend", BACKEND_FORMATS, ids=lambda f: f.name)
@fuzz
@given(answer=ANSWER)
def test_every_answer_survives_every_format(backend, answer):
    body = {"model": "m", "input": "x", "stream_options": {"include_usage": True}}
    whole = backend.read_answer(json.loads(json.dumps(backend.write_answer(answer, body))))
    writer, reader, builder = backend.stream_writer(body), backend.stream_reader(), AnswerBuilder()
    raw = b"".join(piece for event in as_events(answer) for piece in writer.write(event))
    for event in EventSplitter().feed(raw):
        for told in reader.read(event):
            builder.add(told)
    for told in reader.finish():
        builder.add(told)
    for read in (whole, builder.answer()):
        assert (read.text, read.reasoning) == (answer.text, answer.reasoning)
        assert read.usage == answer.usage
        assert [(c.id, c.name) for c in read.tool_calls] == [
            (c.id, c.name) for c in answer.tool_calls
        ]
        for call, original in zip(read.tool_calls, answer.tool_calls, strict=True):
            assert json.loads(call.arguments) == json.loads(original.arguments)


@fuzz
@given(
    payloads=st.lists(st.text().filter(lambda t: t.strip("\r\n")), max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    size=st.integers(1, 9),
)
def test_events_are_the_same_however_the_stream_is_cut(payloads: list[str], end: str, size: int):
    clean = [" ".join(p.splitlines()).replace("\r", " ").replace("\n", " ") for p in payloads]
    raw = "".join(f"event: e{end}data: {p}{end}{end}" for p in clean).encode()
    splitter = EventSplitter()
    found: list[Any] = []
    for start in range(0, len(raw), size):
        found += splitter.feed(raw[start : start + size])
    found += splitter.finish()
    assert [event.data.decode() for event in found] == clean
    assert b"".join(event.raw for event in found) == raw


def test_an_event_without_an_end_is_refused_before_memory_is_full():
    splitter = EventSplitter()
    with pytest.raises(BrokenEventStream):
        for _ in range(40):
            list(splitter.feed(b"x" * 2**20))
