"""What a request is charged and recorded with: told by the provider, or estimated, and once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from kvweave.accounts import KeyStore, Quota, SpentStore, UsageReader
from kvweave.providers.estimate import PICTURE_TOKENS

CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "When?"}], "max_tokens": 50}
RAW = json.dumps(BODY | {"stream": True}).encode()
ESTIMATE = len(RAW) // 4


@pytest.fixture
def key(database, wait_for):
    """A key with a budget; its text is its attribute."""
    key, text = KeyStore(database).create("mill", quota=Quota(budget_tokens=5000))

    class Key:
        headers = {"x-api-key": text}  # noqa: RUF012

        def spends(self, tokens: int) -> None:
            """Wait until so much is spent, and no more follows."""
            spent = SpentStore(database)
            wait_for(lambda: spent.used(key.quota)["budget"] == tokens)
            time.sleep(0.6)  # what is given back is written twice a second
            assert spent.used(key.quota)["budget"] == tokens

    return Key()


def chunk(text: str) -> bytes:
    delta = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": text}}]}
    return b"data: " + json.dumps(delta).encode() + b"\n\n"


def pieces(*texts: str, then_wait: bool = False) -> Callable[[Request], Response]:
    """A stream of these, that breaks off or falls silent before its end."""

    async def stream():
        for text in texts:
            yield chunk(text)
        if then_wait:
            await asyncio.Event().wait()

    return lambda request: StreamingResponse(stream(), media_type="text/event-stream")


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"], ids=["passed", "converted"])
def test_a_stream_whose_client_hangs_up_costs_the_estimate_and_what_came(
    stub, serve, provider_table, records, key, path
):
    provider = stub(script=[pieces("It was", " built of", " red sandstone", then_wait=True)])
    url = serve(provider_table(provider.url))
    with (
        httpx.Client(timeout=30, headers=key.headers) as client,
        client.stream("POST", f"{url}{path}", content=RAW) as response,
    ):
        next(line for line in response.iter_lines() if "sandstone" in line)
    record = records.one()
    assert (record.status, record.error_code) == (499, "client_disconnected")
    assert (record.prompt_tokens, record.completion_tokens) == (ESTIMATE, 1 + 2 + 3)
    key.spends(ESTIMATE + 6)


def test_a_prompt_whose_length_the_provider_told_first_is_not_estimated(
    stub, serve, provider_table, records
):
    for path in ("/v1/messages", CHAT):
        provider = stub(hold=True)
        provider.answer = replace(provider.answer, reasoning="The mill, then.")
        url = serve(provider_table(provider.url, kind="anthropic"))
        with (
            httpx.Client(timeout=30) as client,
            client.stream("POST", f"{url}{path}", content=RAW) as response,
        ):
            next(line for line in response.iter_lines() if "mill" in line)
        record = records.one()
        assert (record.status, record.prompt_tokens) == (499, 120)
        assert 3 <= record.completion_tokens < 9
        records.all.clear()


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"], ids=["passed", "converted"])
def test_a_stream_that_the_provider_cuts_costs_the_estimate_and_what_came(
    stub, serve, provider_table, records, key, path
):
    url = serve(provider_table(stub(script=[pieces("It was", " built of")]).url))
    response = httpx.post(f"{url}{path}", content=RAW, headers=key.headers)
    assert "error" in response.text
    record = records.one()
    assert (record.status, record.error_code) == (502, "provider_bad_answer")
    assert (record.prompt_tokens, record.completion_tokens) == (ESTIMATE, 1 + 2)
    key.spends(ESTIMATE + 3)


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_before_the_answer_has_had_the_prompt_worked_on(
    stub, serve, provider_table, records, key, hang_up, stream
):
    gone = asyncio.Event()

    async def think() -> Response:
        await gone.wait()
        return JSONResponse({})

    provider = stub(think=think)
    url = serve(provider_table(provider.url))
    body = BODY | {"stream": stream}
    hang_up(f"{url}{CHAT}", body, when=lambda: provider.got, headers=key.headers)
    record = records.one()
    estimate = len(json.dumps(body)) // 4
    assert (record.status, record.prompt_tokens, record.completion_tokens) == (499, estimate, 0)
    key.spends(estimate)


def test_who_hangs_up_while_waiting_for_a_provider_pays_nothing(
    stub, serve, provider_table, records, key
):
    provider = stub(hold=True)
    url = serve(provider_table(provider.url, max_concurrent_requests=1))
    with httpx.stream("POST", f"{url}{CHAT}", content=RAW, headers=key.headers) as held:
        lines = held.iter_lines()
        next(lines)
        with httpx.Client(timeout=0.5) as client, pytest.raises(httpx.ReadTimeout):
            client.post(f"{url}{CHAT}", json=BODY, headers=key.headers)
        waited = records.one()
        assert (waited.status, waited.prompt_tokens, waited.provider) == (499, 0, "")
        provider.go_on.set()
        assert "data: [DONE]" in list(lines)
    key.spends(120 + 9)


def test_an_error_costs_nothing_whatever_came_of_it_elsewhere(
    stub, serve, provider_table, records, key
):
    def refuse(request: Request) -> Response:
        return JSONResponse({"error": {"message": "full"}}, 503)

    url = serve(provider_table(stub(script=[refuse]).url))
    assert httpx.post(f"{url}{CHAT}", json=BODY, headers=key.headers).status_code == 503
    record = records.one()
    assert (record.provider, record.prompt_tokens, record.completion_tokens) == ("first", 0, 0)
    key.spends(0)


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"], ids=["passed", "converted"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_a_provider_that_never_tells_its_usage_is_estimated(
    stub, serve, provider_table, records, path, stream
):
    text = "It was built of red sandstone."
    message = {"role": "assistant", "content": text}
    whole = {"id": "x", "model": "m", "choices": [{"message": message, "finish_reason": "stop"}]}

    def streamed(request: Request) -> Response:
        end = {"id": "x", "model": "m", "choices": [{"delta": {}, "finish_reason": "stop"}]}
        body = chunk(text) + b"data: " + json.dumps(end).encode() + b"\n\ndata: [DONE]\n\n"
        return Response(body, media_type="text/event-stream")

    provider = stub(script=[streamed if stream else lambda request: JSONResponse(whole)])
    raw = json.dumps(BODY | {"stream": stream}).encode()
    assert httpx.post(f"{serve(provider_table(provider.url))}{path}", content=raw).is_success
    record = records.one()
    assert record.prompt_tokens == len(raw) // 4
    assert record.completion_tokens == len(text) // 4


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, BODY | {"max_tokens": 600}),
        (CHAT, BODY | {"max_tokens": 200, "n": 3}),
        ("/v1/messages", BODY | {"max_tokens": 600}),
        ("/v1/completions", {"model": "m", "prompt": ["a", "b", "c"], "max_tokens": 200}),
        ("/v1/embeddings", {"model": "m", "input": "x" * 2400}),
    ],
)
def test_a_key_may_use_no_more_than_its_limit_at_providers_either(
    stub, serve, provider_table, database, path, body
):
    provider = stub()
    url = serve(provider_table(provider.url))
    _, text = KeyStore(database).create("mill", quota=Quota(budget_tokens=500))
    refused = httpx.post(f"{url}{path}", json=body, headers={"x-api-key": text})
    assert refused.status_code == 429
    assert "500 tokens a month" in refused.json()["error"]["message"]
    assert provider.got == []


def test_embeddings_within_the_limit_are_settled_with_what_they_used(
    stub, serve, provider_table, key
):
    url = serve(provider_table(stub().url))
    body = {"model": "m", "input": "x" * 2400}
    assert httpx.post(f"{url}/v1/embeddings", json=body, headers=key.headers).is_success
    key.spends(3)


def test_a_large_picture_is_within_a_limit_that_its_bytes_are_not(stub, serve, provider_table, key):
    url = serve(provider_table(stub().url))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10**6}}
    body = BODY | {"messages": [{"role": "user", "content": [picture] * 2}]}
    assert 2 * PICTURE_TOKENS < 5000 < 2 * 10**6 // 4
    assert httpx.post(f"{url}{CHAT}", json=body, headers=key.headers).status_code == 200


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"], ids=["passed", "converted"])
@pytest.mark.parametrize("count", [10**30, -5, "many", None, True])
def test_a_usage_that_cannot_be_is_estimated_and_the_log_goes_on(
    stub, serve, provider_table, records, key, database, wait_for, path, count
):
    message = {"role": "assistant", "content": "It was built."}
    answer = {
        "id": "x",
        "model": "m",
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": count, "completion_tokens": count},
    }
    url = serve(provider_table(stub(script=[lambda request: JSONResponse(answer)]).url))
    raw = json.dumps(BODY).encode()
    for _ in range(2):  # the second is answered by the stub itself
        assert httpx.post(f"{url}{path}", content=raw, headers=key.headers).status_code == 200
    wait_for(lambda: len(records.all) == 2)
    assert records.all[0].prompt_tokens == len(raw) // 4
    assert records.all[0].completion_tokens == 3
    key.spends(len(raw) // 4 + 3 + 129)
    wait_for(lambda: sum(total.requests for total in UsageReader(database).totals()) == 2)
