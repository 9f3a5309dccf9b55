"""Who asked for what: every request to a model leaves one record, and projects share nothing."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from kvweave.accounts import Quota, SpentStore
from kvweave.config import ServerConfig
from kvweave.engine import EngineOverloaded, EngineStopped

CHAT = "/v1/chat/completions"
PASSAGE = "The lodge was built in 1871 by a family of millers."


@pytest.fixture
def as_project(app, keys):
    """A client with a key of the project; the key is its attribute `key`."""

    def as_project(project: str, models=None) -> httpx.AsyncClient:
        key, text = keys.create(project, models=models)
        headers = {"x-api-key": text}
        transport = httpx.ASGITransport(app)
        client = httpx.AsyncClient(transport=transport, base_url="http://server", headers=headers)
        client.key = key
        return client

    return as_project


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_leaves_a_record(as_project, records, engine, chat, stream):
    async with as_project("mill") as client:
        assert (await client.post(CHAT, json=chat(stream=stream))).status_code == 200
        key = client.key
    (record,) = records
    assert (record.project, record.key_id, record.model) == ("mill", key.id, "org/words")
    assert (record.provider, record.format) == ("kvweave", "chat.completions")
    assert (record.status, record.error_code) == (200, None)
    assert record.prompt_tokens == len(engine.prompts[0])
    assert (record.cached_tokens, record.completion_tokens) == (0, 6)
    assert 0 <= record.ttft_s <= record.duration_s


@pytest.mark.parametrize(
    ("path", "body", "format"),
    [
        (
            "/messages",
            {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}]},
            "messages",
        ),
        ("/api/v1/responses/", {"input": "x"}, "responses"),
        ("/v1/completions", {"prompt": "x"}, "completions"),
    ],
)
async def test_every_format_is_named(client, records, path, body, format):
    await client.post(path, json={"model": "org/words"} | body)
    (record,) = records
    assert (record.format, record.project, record.key_id) == (format, "anonymous", None)


@pytest.mark.parametrize(
    ("error", "after", "status", "code"),
    [
        (EngineOverloaded(1), 0, 429, "engine_overloaded"),
        (RuntimeError("x"), 0, 500, "internal_error"),
        (EngineStopped(), 2, 503, "engine_stopped"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_leaves_its_status_and_code(
    client, records, engine, chat, error, after, status, code, stream
):
    engine.error, engine.error_after = error, after
    await client.post(CHAT, json=chat(stream=stream))
    (record,) = records
    assert (record.status, record.error_code) == (status, code)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b'{"model": "other", "messages": []}', 404, "model_not_found"),
        (b'{"model": "org/words", "messages": []}', 400, "invalid_value"),
    ],
)
async def test_a_refused_request_leaves_a_record(client, records, body, status, code):
    await client.post(CHAT, content=body)
    (record,) = records
    assert (record.status, record.error_code) == (status, code)
    assert record.prompt_tokens == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("phase", "has_prompt", "answered"),
    [
        ({"queue_s": 60}, False, 0),
        ({"first_delay_s": 60}, True, 0),
        ({"pause_after": 3, "pause_s": 60}, True, 3),
    ],
    ids=["waiting", "prefill", "answering"],
)
def test_a_client_that_hangs_up_is_charged_once_for_what_was_done(
    base_url,
    engine,
    records,
    chat,
    keys,
    database,
    hang_up,
    wait_for,
    phase,
    has_prompt,
    answered,
    stream,
):
    for name, value in phase.items():
        setattr(engine, name, value)
    engine.words = [" It", " was", " built", " in"]
    key, text = keys.create("mill", quota=Quota(budget_tokens=5000))
    hang_up(
        f"{base_url}{CHAT}",
        chat(stream=stream),
        when=lambda: engine.running and engine.answered == answered,
        headers={"x-api-key": text},
    )
    wait_for(lambda: records)
    (record,) = records
    assert (record.status, record.error_code) == (499, "client_disconnected")
    prompt_tokens = len(engine.prompts[0]) if has_prompt else 0
    assert (record.prompt_tokens, record.completion_tokens) == (prompt_tokens, answered)
    spent = SpentStore(database)
    wait_for(lambda: spent.used(key.quota)["budget"] == prompt_tokens + answered)


async def test_other_endpoints_leave_none(client, records):
    await client.get("/v1/models")
    await client.get("/health")
    assert records == []


async def test_a_projects_chunks_are_its_own(as_project, engine, chat):
    body = chat(messages=[{"role": "user", "content": f"{PASSAGE} When?"}])
    async with as_project("mill") as mill, as_project("other") as other:
        await mill.post("/v1/chunks", json={"chunks": [{"text": PASSAGE}]})
        await mill.post(CHAT, json=body)
        await other.post(CHAT, json=body)
        tenants = [mill.key.tenant, mill.key.tenant, other.key.tenant]
    assert engine.tenants == tenants and len(set(tenants)) == 2
    found = [[s.role for s in prompt.segments] for prompt in engine.prompts]
    assert "chunk" in found[0] and "chunk" not in found[1]


async def test_an_answer_that_broke_off_is_counted_by_its_pieces(client, records, engine, chat):
    engine.error, engine.error_after = EngineStopped(), 2
    await client.post(CHAT, json=chat(stream=True))
    (record,) = records
    assert (record.prompt_tokens, record.completion_tokens) == (len(engine.prompts[0]), 2)


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses", "/v1/completions"])
async def test_a_key_may_use_no_more_tokens_than_its_limit_in_any_format(client, keys, path):
    _, text = keys.create("mill", quota=Quota(tpm=100))
    messages = [{"role": "user", "content": "x"}]
    body = {"model": "org/words", "messages": messages, "input": "x"}
    body |= {"prompt": "x"} if path == "/v1/completions" else {}
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    headers = {"x-api-key": text}
    assert (await client.post(path, json=body | {limit: 20}, headers=headers)).status_code == 200
    refused = await client.post(path, json=body | {limit: 200}, headers=headers)
    assert refused.status_code == 429
    assert "100 tokens a minute" in refused.json()["error"]["message"]


async def test_a_missing_key_is_told_in_anthropics_format(client, keys):
    keys.create("mill")
    refused = await client.post("/v1/messages", json={})
    assert refused.status_code == 401
    assert refused.json()["error"]["type"] == "authentication_error"
    assert refused.json()["type"] == "error"


async def test_a_key_for_other_models_is_403_and_sees_none_of_them(as_project, chat):
    async with as_project("mill", ["elsewhere"]) as client:
        refused = await client.post(CHAT, json=chat())
        assert refused.status_code == 403
        assert refused.json()["error"]["code"] == "model_not_allowed"
        assert (await client.get("/v1/models")).json()["data"] == []
        assert (await client.get("/v1/models/org/words")).status_code == 403
        unknown = await client.post(CHAT, json=chat(model="org/word"))
        assert unknown.status_code == 404
        assert "org/words" not in unknown.text


@pytest.mark.parametrize("limits", [ServerConfig(max_concurrent_requests=2)])
async def test_more_requests_than_allowed_at_once_are_429(client, engine, chat, records):
    engine.delay_s = 0.05
    answers = await asyncio.gather(*(client.post(CHAT, json=chat()) for _ in range(6)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200, 200, 429, 429, 429, 429]
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["code"] == "too_many_requests"
    assert (await client.post(CHAT, json=chat())).status_code == 200
    assert len(records) == 7


@pytest.mark.parametrize("limits", [ServerConfig(max_messages=3)])
async def test_too_many_messages_are_refused_before_any_work(client, engine, chat):
    messages = [{"role": "user", "content": "x"}] * 4
    error = (await client.post(CHAT, json=chat(messages=messages))).json()["error"]
    assert error["code"] == "too_many_messages"
    answer = await client.post("/responses", json={"model": "org/words", "input": messages})
    assert answer.status_code == 400
    assert engine.prompts == []


@pytest.mark.parametrize("limits", [ServerConfig(client_timeout_sec=0.1)])
async def test_a_client_that_stops_sending_is_told(client):
    async def slowly():
        yield b'{"model":'
        await asyncio.sleep(60)

    answer = await client.post(CHAT, content=slowly())
    assert answer.status_code == 408
    assert answer.json()["error"]["code"] == "request_timeout"


async def test_a_model_name_pasted_with_white_space_is_understood(client, chat):
    assert (await client.post(CHAT, json=chat(model=" org/words\n"))).status_code == 200
