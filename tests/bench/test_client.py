from __future__ import annotations

import base64
import time
from typing import Any

import numpy as np
import pytest
from fastapi.responses import JSONResponse, Response, StreamingResponse

from kvweave.bench import BenchError, Chunk, Question
from kvweave.bench.client import BenchClient, RequestFailed, decode_logprobs, is_loopback
from kvweave.bench.prompts import chat_messages

QUESTION = Question("Who?", ("Ada",), (Chunk("a", "One two three."), Chunk("b", "Four five.\n")))
MESSAGES = chat_messages(QUESTION)


def test_each_chunk_is_a_part_of_its_own_and_the_question_comes_last() -> None:
    system, user = MESSAGES
    assert system["role"] == "system"
    texts = [part["text"] for part in user["content"]]  # type: ignore[index,union-attr]
    assert texts == ["One two three.\n", "Four five.\n", "\nQuestion: Who?"]


def test_an_answer_is_measured(fake_server: Any) -> None:
    fake_server.answers = {"Who?": "Ada Lovelace"}
    with BenchClient(fake_server.url) as client:
        options = {"mode": "blend", "first_token_logprobs": True}
        measured = client.ask(MESSAGES, options, max_tokens=7)
    assert measured.answer == "Ada Lovelace"
    assert measured.finish_reason == "stop"
    assert measured.prompt_tokens == 7
    assert measured.completion_tokens == 2
    assert measured.reuse["mode"] == "blend"
    assert "first_token_logprobs" not in measured.reuse
    assert measured.logprobs is not None
    assert np.exp(measured.logprobs).sum() == pytest.approx(1, abs=1e-5)
    (body,) = fake_server.requests
    assert body["kvweave"] == options
    assert (body["temperature"], body["max_tokens"], body["stream"]) == (0, 7, True)


def test_ttft_is_the_time_to_the_first_text_and_not_to_the_first_event(fake_server: Any) -> None:
    def slow(body: dict[str, Any]) -> Response:
        events = fake_server._events("Ada", fake_server._report("full", [], 1))

        def paced() -> Any:
            yield next(events)  # the role, without text
            time.sleep(0.2)
            yield next(events)
            time.sleep(0.2)
            yield from events

        return StreamingResponse(paced(), media_type="text/event-stream")

    fake_server.fail = slow
    with BenchClient(fake_server.url) as client:
        measured = client.ask(MESSAGES, {"mode": "full"}, max_tokens=1)
    assert measured.ttft > 0.19
    assert measured.total - measured.ttft > 0.19


def test_a_refusal_gives_the_servers_message(fake_server: Any) -> None:
    refusal = JSONResponse({"error": {"message": "too long by 12"}}, status_code=400)
    fake_server.fail = lambda body: refusal
    with (
        BenchClient(fake_server.url) as client,
        pytest.raises(RequestFailed, match="too long by 12"),
    ):
        client.ask(MESSAGES, {"mode": "full"}, max_tokens=1)


def test_a_stream_that_breaks_off_is_a_failure(fake_server: Any) -> None:
    def broken(body: dict[str, Any]) -> Response:
        events = fake_server._events("Ada", fake_server._report("full", [], 1))

        def cut() -> Any:
            yield next(events)
            yield next(events)
            raise OSError("gone")

        return StreamingResponse(cut(), media_type="text/event-stream")

    fake_server.fail = broken
    with BenchClient(fake_server.url) as client, pytest.raises(RequestFailed):
        client.ask(MESSAGES, {"mode": "full"}, max_tokens=1)


def test_idle_is_waited_for(fake_server: Any) -> None:
    fake_server._pending = {"text": time.monotonic() + 0.3}
    start = time.monotonic()
    with BenchClient(fake_server.url) as client:
        client.wait_until_idle()
    assert time.monotonic() - start > 0.25
    assert fake_server.pending() == 0


def test_no_server_is_an_error_that_names_the_address() -> None:
    with (
        BenchClient("http://127.0.0.1:9") as client,
        pytest.raises(
            BenchError, match=r"127\.0\.0\.1:9/v1/models .*refused.*is the server running"
        ),
    ):
        _ = client.model


@pytest.mark.parametrize("url", ["", "/", "/v1", "/v1/"])
def test_the_address_may_end_as_clients_write_it(fake_server: Any, url: str) -> None:
    with BenchClient(fake_server.url + url) as client:
        assert client.model == "fake"


def test_loopback_never_goes_through_a_proxy(
    fake_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with BenchClient(fake_server.url) as client:
        client.wait_until_idle()
        assert client.model == "fake"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:80", True),
        ("http://[::1]:80/v1", True),
        ("http://localhost:8080", True),
        ("http://10.0.0.1:80", False),
        ("https://example.org", False),
    ],
)
def test_loopback_addresses_are_recognised(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected


def test_logprobs_are_little_endian_float32() -> None:
    values = np.array([-1.5, -0.25], dtype="<f4")
    encoded = base64.b64encode(values.tobytes()).decode()
    assert decode_logprobs(encoded).tolist() == [-1.5, -0.25]


@pytest.mark.parametrize("encoded", ["not base64!", "AAAA", 7])
def test_logprobs_that_cannot_be_decoded_are_a_failure(encoded: Any) -> None:
    with pytest.raises(RequestFailed, match="first_token_logprobs"):
        decode_logprobs(encoded)
