"""What is passed on, what is not, and what happens when a provider fails."""

from __future__ import annotations

import asyncio
import json
import logging

import httpx
import pytest
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "When?"}]}
STREAM = BODY | {"stream": True}
EVENTS = "text/event-stream"
TEXT = "It was built in 1871."


def fail(status: int, headers: dict[str, str] | None = None, message: str = "no"):
    return lambda request: JSONResponse({"error": {"message": message}}, status, headers)


def answer(body: object):
    return lambda request: JSONResponse(body)


def events(*payloads: str):
    raw = "".join(f"data: {payload}\n\n" for payload in payloads)
    return lambda request: Response(raw, media_type="text/event-stream")


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def error_of(response: httpx.Response, status: int) -> dict[str, object]:
    assert response.status_code == status, response.text
    return response.json()["error"]


def test_what_a_provider_understands_is_passed_on_byte_by_byte(stub, serve, provider_table):
    provider = stub()
    url = serve(provider_table(provider.url))
    raw = b'{ "model":"m",  "messages":[{"role":"user","content":"\\u00fc"}], "no_such": 1.50 }'
    response = httpx.post(f"{url}{CHAT}", content=raw)
    assert provider.got[0].raw == raw
    direct = httpx.post(f"{provider.url}{CHAT}", content=raw)
    assert response.content == direct.content
    assert response.headers["content-type"] == "application/json"


def test_a_stream_is_passed_on_byte_by_byte(stub, serve, provider_table):
    provider = stub()
    url = serve(provider_table(provider.url))
    body = BODY | {"stream": True, "stream_options": {"include_usage": True}}
    passed = httpx.post(f"{url}{CHAT}", json=body)
    assert passed.content == httpx.post(f"{provider.url}{CHAT}", json=body).content
    assert passed.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_the_usage_of_a_stream_is_known_and_not_sent_unasked(stub, serve, provider_table, records):
    provider = stub()
    url = serve(provider_table(provider.url))
    response = httpx.post(f"{url}{CHAT}", json=BODY | {"stream": True})
    assert provider.got[0].body["stream_options"] == {"include_usage": True}
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert all(chunk["choices"] and chunk.get("usage") is None for chunk in chunks)
    assert records.one().completion_tokens == 9


def test_each_piece_of_a_stream_is_there_before_the_next_is_made(stub, serve, provider_table):
    for kind in ("openai", "anthropic"):  # passed on, and converted
        provider = stub(hold=True)
        url = serve(provider_table(provider.url, kind=kind))
        with httpx.stream("POST", f"{url}{CHAT}", json=BODY | {"stream": True}) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            provider.go_on.set()
            assert "data: [DONE]" in list(lines)


def test_an_alias_is_sent_as_the_providers_own_name(stub, serve, provider_table):
    provider = stub()
    url = serve(provider_table(provider.url, models={"fast": "org/Long-Name-8B", "m": "m"}))
    for format_path, body in [
        (CHAT, BODY),
        ("/v1/messages", BODY | {"max_tokens": 5}),
        ("/v1/responses", {"input": "x"}),
    ]:
        assert httpx.post(f"{url}{format_path}", json=body | {"model": "fast"}).status_code == 200
    assert {got.body["model"] for got in provider.got} == {"org/Long-Name-8B"}
    names = [model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]]
    assert names == ["fast", "m"]


def test_keys_are_the_servers_own(stub, serve, provider_table, monkeypatch):
    monkeypatch.setenv("MILL_KEY", "  sk-provider-1234567890\n")
    secret = {"authorization": "Bearer sk-client-secret", "x-api-key": "client-secret",
              "cookie": "a=client-secret", "anthropic-beta": "b1"}  # fmt: skip
    for kind, header, value in [
        ("openai", "authorization", "Bearer sk-provider-1234567890"),
        ("anthropic", "x-api-key", "sk-provider-1234567890"),
    ]:
        provider = stub()
        url = serve(provider_table(provider.url, kind=kind, api_key_env="MILL_KEY"))
        body = BODY | {"max_tokens": 5}
        httpx.post(f"{url}/v1/messages", json=body, headers=secret)
        (got,) = provider.got
        assert got.headers[header] == value
        assert "client-secret" not in json.dumps(got.headers)
        assert ("anthropic-version" in got.headers) == (kind == "anthropic")
        assert got.headers.get("anthropic-beta") == ("b1" if kind == "anthropic" else None)


@pytest.mark.parametrize(
    "failure",
    [fail(500), fail(503), fail(429), fail(529), fail(401), fail(403), fail(404), fail(301),
     answer({"error": {"message": "quota"}}), answer({"error": "model not loaded"}),
     answer({"object": "error", "message": "bad"}), answer({"choices": []}), answer([1]),
     lambda request: HTMLResponse("<html>down</html>")],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_the_next_provider_answers_where_one_fails(stub, serve, provider_table, failure, stream):
    first, second = stub(script=[failure]), stub()
    url = serve(provider_table(first.url), provider_table(second.url, name="second"))
    response = httpx.post(f"{url}{CHAT}", json=BODY | {"stream": stream})
    assert response.status_code == 200
    assert "1871" in response.text
    assert (len(first.got), len(second.got)) == (1, 1)


def test_the_next_provider_answers_where_one_is_out_of_reach(
    stub, serve, provider_table, closed_url, records
):
    second = stub()
    url = serve(provider_table(closed_url), provider_table(second.url, name="second"))
    assert text_of(httpx.post(f"{url}{CHAT}", json=BODY)) == TEXT
    assert records.one().provider == "second"


def test_a_stream_that_begins_with_an_error_is_answered_by_the_next(stub, serve, provider_table):
    first, second = stub(script=[events('{"error": {"message": "full"}}')]), stub()
    url = serve(provider_table(first.url), provider_table(second.url, name="second"))
    assert "1871" in httpx.post(f"{url}{CHAT}", json=BODY | {"stream": True}).text


def test_a_request_that_is_wrong_is_not_sent_elsewhere(stub, serve, provider_table):
    first = stub(script=[fail(400, message="temperature: too hot")])
    second = stub()
    url = serve(provider_table(first.url), provider_table(second.url, name="second"))
    error = error_of(httpx.post(f"{url}{CHAT}", json=BODY), 400)
    assert "temperature: too hot" in error["message"]
    assert second.got == []


def test_a_busy_provider_is_asked_again_up_to_the_limit(stub, serve, provider_table):
    provider = stub(script=[fail(503), fail(503)])
    url = serve(provider_table(provider.url, max_retries=2))
    assert text_of(httpx.post(f"{url}{CHAT}", json=BODY, timeout=30)) == TEXT
    assert len(provider.got) == 3
    provider.script += [fail(503)] * 5
    error_of(httpx.post(f"{url}{CHAT}", json=BODY, timeout=30), 503)
    assert len(provider.got) == 6


def test_a_wrong_key_at_the_provider_is_not_the_clients_and_not_asked_again(
    stub, serve, provider_table
):
    provider = stub(script=[fail(401, message="Incorrect API key")])
    url = serve(provider_table(provider.url, max_retries=2))
    error = error_of(httpx.post(f"{url}{CHAT}", json=BODY), 502)
    assert error["code"] == "provider_refused"
    assert "The provider first answered 401: Incorrect API key" in error["message"]
    assert len(provider.got) == 1


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (fail(429, {"retry-after": "7"}), 429, "rate_limit_exceeded"),
        (fail(500), 502, "provider_error"),
        (answer({"error": {"message": "quota"}}), 502, "provider_error"),
        (answer({"error": {"message": "slow down", "code": 429}}), 429, "rate_limit_exceeded"),
        (answer({"id": "x"}), 502, "provider_bad_answer"),
        (lambda request: HTMLResponse("<html>"), 502, "provider_bad_answer"),
        (fail(422, message="unprocessable"), 422, "invalid_request"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
def test_an_error_is_an_error_in_the_clients_format(
    stub, serve, provider_table, records, failure, status, code, stream, path
):
    provider = stub(script=[failure])
    url = serve(provider_table(provider.url))
    body = BODY | {"max_tokens": 5, "input": "x", "stream": stream}
    response = httpx.post(f"{url}{path}", json=body)
    error = error_of(response, status)
    assert error["message"].startswith(("The provider first", "What the provider first"))
    if path == "/v1/messages":
        assert response.json()["type"] == "error"
    else:
        assert error["code"] == code
    if status == 429:
        assert int(response.headers["retry-after"]) in (1, 7)
    record = records.one()
    assert (record.status, record.error_code, record.provider) == (status, code, "first")


def test_a_stream_that_breaks_off_ends_with_an_error(stub, serve, provider_table, records):
    half = '{"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"It"}}]}'
    for path, kind in [(CHAT, "openai"), ("/v1/messages", "openai")]:
        provider = stub(script=[events(half)])
        url = serve(provider_table(provider.url, kind=kind))
        response = httpx.post(f"{url}{path}", json=BODY | {"stream": True, "max_tokens": 5})
        last = response.text.strip().split("\n\n")[-1]
        assert "error" in last and "provider first" in last
        assert "[DONE]" not in response.text and "message_stop" not in response.text
    assert [record.error_code for record in records.all] == ["provider_bad_answer"] * 2


def test_half_an_event_is_not_passed_on(stub, serve, provider_table):
    """Nor is the end that it seems to hold taken for one."""
    whole = b'data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"It"}}]}\n\n'
    half = b'data: {"id":"x","choices":[{"delta":{"content":" was"},"finish_reason":"st'
    provider = stub(script=[lambda request: Response(whole + half, media_type=EVENTS)])
    response = httpx.post(f"{serve(provider_table(provider.url))}{CHAT}", json=STREAM)
    first, last = response.text.strip().split("\n\n")
    assert first.encode() + b"\n\n" == whole
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "provider_bad_answer"


def test_an_end_without_its_empty_line_is_one(stub, serve, provider_table):
    end = b'data: {"id":"x","choices":[{"delta":{"content":"It"},"finish_reason":"stop"}]}'
    provider = stub(script=[lambda request: Response(end, media_type=EVENTS)])
    response = httpx.post(f"{serve(provider_table(provider.url))}{CHAT}", json=STREAM)
    assert response.content == end + b"\n\n"


@pytest.mark.parametrize("together", [True, False])
def test_an_error_within_a_stream_is_told_once_and_by_name(
    stub, serve, provider_table, records, together
):
    text = '{"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"It"}}]}'
    error = '{"error":{"message":"out of memory","code":500}}'
    pieces = [f"data: {text}\n\n", f"data: {error}\n\n"]

    async def apart():
        for piece in pieces:
            yield piece
            await asyncio.sleep(0.1)

    def script(request):
        content = "".join(pieces) if together else None
        if content is not None:
            return Response(content, media_type=EVENTS)
        return StreamingResponse(apart(), media_type=EVENTS)

    url = serve(provider_table(stub(script=[script]).url))
    first, last = httpx.post(f"{url}{CHAT}", json=STREAM).text.strip().split("\n\n")
    assert "It" in first
    message = json.loads(last.removeprefix("data: "))["error"]["message"]
    assert message == "The provider first answered 500: out of memory"
    assert records.one().error_code == "provider_error"


@pytest.mark.parametrize("retry_after", ["inf", "1e400", "nan", "-1", "soon"])
def test_a_retry_after_that_is_no_time_is_left_out(stub, serve, provider_table, retry_after):
    provider = stub(script=[fail(429, {"retry-after": retry_after})])
    response = httpx.post(f"{serve(provider_table(provider.url))}{CHAT}", json=BODY)
    error_of(response, 429)
    assert response.headers["retry-after"] == "1"


def test_redirects_are_not_followed(stub, serve, provider_table):
    elsewhere = stub()
    for status in (301, 302, 307, 308):
        redirect = RedirectResponse(f"{elsewhere.url}{CHAT}", status)
        provider = stub(script=[lambda request, redirect=redirect: redirect])
        url = serve(provider_table(provider.url))
        error = error_of(httpx.post(f"{url}{CHAT}", json=BODY), 502)
        assert "redirects, which is not followed" in error["message"]
    assert elsewhere.got == []


def test_a_provider_that_sends_nothing_is_given_up(stub, serve, provider_table):
    provider = stub(hold=True)
    url = serve(provider_table(provider.url, timeout_sec=0.2))
    response = httpx.post(f"{url}{CHAT}", json=BODY | {"stream": True})
    assert '"provider_timeout"' in response.text.strip().split("\n\n")[-1]
    provider.go_on.set()


def test_hanging_up_ends_the_request_at_the_provider(stub, serve, provider_table, records):
    provider = stub(hold=True)
    url = serve(provider_table(provider.url))
    with httpx.stream("POST", f"{url}{CHAT}", json=BODY | {"stream": True}) as response:
        next(response.iter_lines())
    assert provider.hung_up.wait(10)
    assert records.one().error_code == "client_disconnected"


def test_a_provider_that_keeps_failing_comes_last(stub, serve, provider_table):
    first, second = stub(script=[fail(500)] * 3), stub()
    url = serve(provider_table(first.url), provider_table(second.url, name="second"))
    for _ in range(5):
        assert text_of(httpx.post(f"{url}{CHAT}", json=BODY)) == TEXT
    assert (len(first.got), len(second.got)) == (3, 5)
    health = httpx.get(f"{url}/health").json()["providers"]
    assert not health["first"]["ok"] and health["first"]["pause_s"] > 0
    assert health["second"] == {"ok": True, "last_error": None, "pause_s": 0.0}


def test_a_provider_that_pauses_is_still_the_last_resort(stub, serve, provider_table):
    provider = stub(script=[fail(500)] * 3)
    url = serve(provider_table(provider.url))
    for _ in range(3):
        error_of(httpx.post(f"{url}{CHAT}", json=BODY), 502)
    assert text_of(httpx.post(f"{url}{CHAT}", json=BODY)) == TEXT
    assert httpx.get(f"{url}/health").json()["providers"]["first"]["ok"]


def test_more_requests_than_a_provider_may_have_go_to_the_next_or_are_429(
    stub, serve, provider_table
):
    first, second = stub(hold=True), stub()
    few = {"max_concurrent_requests": 1, "max_waiting_requests": 0}
    url = serve(
        provider_table(first.url, **few, models=["m", "n"]),
        provider_table(second.url, name="second"),
    )
    with httpx.stream("POST", f"{url}{CHAT}", json=BODY | {"stream": True}) as held:
        lines = held.iter_lines()
        next(lines)
        assert text_of(httpx.post(f"{url}{CHAT}", json=BODY)) == TEXT
        response = httpx.post(f"{url}{CHAT}", json=BODY | {"model": "n"})
        assert error_of(response, 429)["code"] == "too_many_requests"
        assert int(response.headers["retry-after"]) >= 1
        first.go_on.set()
        assert "data: [DONE]" in list(lines)
    assert len(second.got) == 1


def test_a_dead_local_proxy_in_the_environment_does_no_harm(
    stub, serve, provider_table, monkeypatch, closed_url
):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, closed_url)
    url = serve(provider_table(stub().url))
    with httpx.Client(trust_env=False) as client:
        assert text_of(client.post(f"{url}{CHAT}", json=BODY)) == TEXT


def test_a_key_that_a_provider_repeats_reaches_neither_client_nor_log(
    stub, serve, provider_table, monkeypatch, caplog
):
    key = "mill:very-secret-key"
    monkeypatch.setenv("MILL_KEY", key)
    provider = stub(script=[fail(500, message=f"bad key {key}, Bearer {key}, sk-abcdef123456")])
    url = serve(provider_table(provider.url, api_key_env="MILL_KEY"))
    with caplog.at_level(logging.DEBUG):
        response = httpx.post(f"{url}{CHAT}", json=BODY)
    assert "bad key [key]" in response.text
    for text in (response.text, caplog.text, httpx.get(f"{url}/health").text):
        assert "very-secret" not in text and "abcdef123456" not in text


def test_embeddings_are_passed_through(stub, serve, provider_table, records):
    provider = stub()
    url = serve(provider_table(provider.url, models={"e": "embed-large"}))
    response = httpx.post(f"{url}/v1/embeddings", json={"model": "e", "input": ["x"]})
    assert response.json()["data"][0]["embedding"] == [0.5, 0.25]
    assert provider.got[0].body == {"model": "embed-large", "input": ["x"]}
    assert records.one().prompt_tokens == 3


def test_a_provider_without_an_endpoint_is_passed_over_and_not_blamed(stub, serve, provider_table):
    first, second = stub(), stub()
    url = serve(
        provider_table(first.url, kind="anthropic", models=["e", "n"]),
        provider_table(second.url, name="second", models=["e"]),
    )
    for _ in range(5):
        response = httpx.post(f"{url}/v1/embeddings", json={"model": "e", "input": "x"})
        assert response.status_code == 200
    assert first.got == []
    assert httpx.get(f"{url}/health").json()["providers"]["first"]["ok"]
    response = httpx.post(f"{url}/v1/embeddings", json={"model": "n", "input": "x"})
    error = error_of(response, 400)
    assert error["code"] == "unsupported_endpoint" and "served by first" in error["message"]


def test_tokens_are_counted_by_the_provider_where_it_can(stub, serve, provider_table):
    body = BODY | {"system": "x" * 400}
    for kind, expected in [("anthropic", 41), ("kvweave", 41)]:
        url = serve(provider_table(stub().url, kind=kind))
        counted = httpx.post(f"{url}/v1/messages/count_tokens", json=body)
        assert counted.json() == {"input_tokens": expected}
    url = serve(provider_table(stub().url))
    counted = httpx.post(f"{url}/v1/messages/count_tokens", json=body)
    assert 50 < counted.json()["input_tokens"] < 400
    assert counted.headers["x-kvweave-token-count"] == "estimate"


def test_a_misspelt_model_is_404_with_the_nearest_names(stub, serve, provider_table):
    url = serve(provider_table(stub().url, models=["qwen3-8b", "qwen3-14b", "other"]))
    error = error_of(httpx.post(f"{url}{CHAT}", json=BODY | {"model": "qwen-8b"}), 404)
    assert error["code"] == "model_not_found"
    assert "'qwen3-8b'" in error["message"]


def test_chunks_belong_to_the_engine_and_a_server_without_one_says_where_to_go(
    stub, serve, provider_table
):
    url = serve(provider_table(stub().url))
    error = error_of(httpx.post(f"{url}/v1/chunks", json={"chunks": []}), 404)
    assert error["code"] == "unknown_url"
