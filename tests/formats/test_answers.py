"""Every answer in every format: the official clients' types take it, and it reads back the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kvweave.formats import (
    BACKEND_FORMATS,
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    Answer,
    AnswerBuilder,
    FormatError,
    ToolCall,
    ToolCallDelta,
    Usage,
    as_events,
)
from kvweave.formats.sse import parse_event

USAGE = Usage(prompt_tokens=120, cached_tokens=0, completion_tokens=9)
PLAIN = Answer("chatcmpl-1", "m", 1_700_000_000, "In 1871.\u2028 \U0001f3e0", "stop", USAGE)
CALLS = (
    ToolCall("call_1", "read", '{"path": "stones.txt", "n": [1, 2.5, null]}'),
    ToolCall("call_2", "list", "{}"),
)
ANSWERS = {
    "text": PLAIN,
    "cut": replace(PLAIN, finish_reason="length"),
    "cached": replace(PLAIN, usage=replace(USAGE, cached_tokens=100)),
    "refused": replace(PLAIN, text="No.", finish_reason="content_filter"),
    "text and tools": replace(PLAIN, tool_calls=CALLS, finish_reason="tool_calls"),
    "tools alone": replace(PLAIN, text="", tool_calls=CALLS, finish_reason="tool_calls"),
    "thoughts": replace(PLAIN, reasoning="Look it up."),
    "thoughts and tools": replace(
        PLAIN, reasoning="Hm.", text="", tool_calls=CALLS[:1], finish_reason="tool_calls"
    ),
    "empty": replace(PLAIN, text=""),
    "with a report": replace(PLAIN, usage=replace(USAGE, extra={"kvweave": {"mode": "blend"}})),
}
REQUESTS = {
    "chat": {"model": "m", "stream_options": {"include_usage": True}},
    "completions": {"model": "m", "prompt": "x", "stream_options": {"include_usage": True}},
    "messages": {"model": "m"},
    "responses": {
        "model": "m",
        "input": "x",
        "tools": [{"type": "function", "name": "read", "parameters": {}, "strict": False}],
    },
}
every_answer = pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
clients = pytest.mark.parametrize(
    "format", [CHAT, COMPLETIONS, MESSAGES, RESPONSES], ids=lambda f: f.name
)
both_ways = pytest.mark.parametrize("format", BACKEND_FORMATS, ids=lambda f: f.name)


def comparable(answer: Answer, name: str) -> Answer:
    """What of an answer its format can carry."""
    reason = answer.finish_reason
    if name == "responses" and reason == "content_filter":
        reason = "stop"  # there it is the text itself that says no
    prefix = {"messages": "msg_", "responses": "resp_"}.get(name)
    id = f"{prefix}1" if prefix else answer.id
    created = 0 if name == "messages" else answer.created
    return replace(answer, id=id, created=created, finish_reason=reason)


@clients
@every_answer
def test_the_official_type_takes_the_whole_answer(format, answer, check_whole):
    check_whole(format.name, format.write_answer(answer, REQUESTS[format.name]))


@clients
@every_answer
def test_the_official_types_take_every_event_of_the_stream(
    format, answer, parse_stream, write_stream
):
    parsed = parse_stream(
        format.name, write_stream(format, as_events(answer), REQUESTS[format.name])
    )
    assert parsed


@both_ways
@every_answer
def test_a_whole_answer_reads_back_the_same(format, answer):
    body = json.loads(json.dumps(format.write_answer(answer, REQUESTS[format.name])))
    read = format.read_answer(body)
    expected = comparable(answer, format.name)
    assert replace(read, created=expected.created) == expected


@both_ways
@every_answer
@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_stream_reads_back_the_same_however_it_is_cut(
    format, answer, size, read_stream, write_stream
):
    raw = write_stream(format, as_events(answer), REQUESTS[format.name])
    builder = AnswerBuilder()
    for event in read_stream(format, raw, size):
        builder.add(event)
    expected = comparable(answer, format.name)
    read = builder.answer()
    assert replace(read, created=expected.created) == expected


@pytest.mark.parametrize("source", BACKEND_FORMATS, ids=lambda f: f.name)
@clients
@every_answer
def test_any_backends_stream_becomes_any_clients_event_by_event(
    source, format, answer, parse_stream, write_stream
):
    """What one event says is written before the next is read: nothing is collected."""
    raw = write_stream(source, as_events(answer), REQUESTS[source.name])
    reader, writer = source.stream_reader(), format.stream_writer(REQUESTS[format.name])
    written = b""
    steps = 0
    for event in raw.split(b"\n\n")[:-1]:
        before = len(written)
        for told in reader.read(parse_event(event + b"\n\n")):
            written += b"".join(writer.write(told))
        steps += len(written) > before
    for told in reader.finish():
        written += b"".join(writer.write(told))
    assert parse_stream(format.name, written)
    if answer.text:
        assert steps > 1


@clients
def test_cached_tokens_are_there_even_when_they_are_0(format):
    text = json.dumps(format.write_answer(PLAIN, REQUESTS[format.name]))
    name = "cache_read_input_tokens" if format is MESSAGES else "cached_tokens"
    assert f'"{name}": 0' in text


def test_to_anthropic_cached_tokens_are_no_input_tokens():
    usage = MESSAGES.write_answer(ANSWERS["cached"], {})["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (20, 100)


def test_a_tool_that_takes_free_text_gets_free_text(parse_stream, write_stream):
    call = ToolCall("call_1", "apply_patch", json.dumps({"input": "*** Begin\n+x"}))
    answer = replace(PLAIN, text="", tool_calls=(call,), finish_reason="tool_calls")
    body = {"model": "m", "input": "x", "tools": [{"type": "custom", "name": "apply_patch"}]}
    (item,) = RESPONSES.write_answer(answer, body)["output"]
    assert (item["type"], item["input"]) == ("custom_tool_call", "*** Begin\n+x")
    events = parse_stream("responses", write_stream(RESPONSES, as_events(answer), body))
    kinds = [event.type for event in events]
    assert "response.custom_tool_call_input.done" in kinds
    assert events[-1].response.output[0].input == "*** Begin\n+x"


def test_arguments_that_are_no_json_reach_anthropics_clients_as_an_object(check_whole):
    call = ToolCall("call_1", "read", '{"path": ')
    answer = replace(PLAIN, tool_calls=(call,), finish_reason="tool_calls")
    message = check_whole("messages", MESSAGES.write_answer(answer, {}))
    assert message.content[1].input == {"arguments": '{"path": '}


def test_each_event_of_a_response_has_the_next_number(parse_stream, write_stream):
    raw = write_stream(RESPONSES, as_events(ANSWERS["text and tools"]), REQUESTS["responses"])
    numbers = [event.sequence_number for event in parse_stream("responses", raw)]
    assert numbers == list(range(len(numbers)))


def test_a_text_delta_is_written_at_once():
    writer = MESSAGES.stream_writer({})
    start, first, *_ = as_events(PLAIN)
    list(writer.write(start))
    assert b"In 1871." in b"".join(writer.write(first))


def test_arguments_of_a_call_that_is_over_are_an_error():
    for format in (MESSAGES, RESPONSES):
        writer = format.stream_writer(REQUESTS[format.name])
        for event in list(as_events(ANSWERS["tools alone"]))[:-1]:
            list(writer.write(event))
        with pytest.raises(FormatError, match="mixes"):
            list(writer.write(ToolCallDelta(0, "x")))


@clients
def test_an_error_in_a_stream_says_what_happened(format):
    writer = format.stream_writer(REQUESTS[format.name])
    told = writer.error(429, "slow down", "too_many")
    assert b"slow down" in told and told.endswith(b"\n\n")
    if format is MESSAGES:
        assert told.startswith(b"event: error\n") and b"rate_limit_error" in told
    if format is RESPONSES:
        assert told.startswith(b"event: response.failed\n") and b"rate_limit_exceeded" in told
