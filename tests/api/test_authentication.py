"""Who may in, what of the caller reaches the engine, and what is recorded."""

from __future__ import annotations

import asyncio
import time

import httpx
import openai
import pytest

from kvweave.accounts import KeyStore, Quota, UsageReader
from kvweave.api import ServerStartError
from kvweave.api.exposure import check_exposure


@pytest.fixture
def post(client, chat):
    async def post(key: str | None = None, path="/v1/chat/completions", **changes):
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return await client.post(path, json=chat(**changes), headers=headers)

    return post


async def records(database, count):
    """What was recorded, once there are `count`."""
    for _ in range(600):
        found = list(UsageReader(database).records())
        if len(found) >= count:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{len(found)} records")


async def test_without_any_key_everybody_may_in(post, engine):
    assert (await post()).status_code == 200
    assert engine.tenants == [""]


async def test_from_the_first_key_on_a_key_is_needed(post, keys, engine):
    key, text = keys.create("app")
    refused = await post()
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json()["error"]["type"] == "authentication_error"
    assert refused.json()["error"]["code"] == "missing_api_key"
    assert (await post(text)).status_code == 200
    assert engine.tenants == [key.tenant]


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/org/words", "/metrics", "/v1/nowhere"])
async def test_every_path_but_health_needs_the_key(client, keys, path):
    _, text = keys.create("app")
    assert (await client.get(path)).status_code == 401
    assert (await client.get(path, headers={"x-api-key": text})).status_code != 401
    assert (await client.get("/v1/health")).status_code == 200


async def test_the_official_client_is_let_in_and_refused(base_url, keys):
    _, text = keys.create("app")

    def ask(key: str) -> str | None:
        client = openai.OpenAI(base_url=f"{base_url}/v1", api_key=key, max_retries=0)
        messages = [{"role": "user", "content": "When?"}]
        done = client.chat.completions.create(model="org/words", messages=messages)
        return done.choices[0].message.content

    assert await asyncio.to_thread(ask, text)
    with pytest.raises(openai.AuthenticationError, match="of Anthropic"):
        await asyncio.to_thread(ask, "sk-ant-api03-xyz")


async def test_a_key_is_only_for_its_models(client, post, keys):
    _, text = keys.create("app", models=["another"])
    refused = await post(text)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_not_allowed")
    headers = {"x-api-key": text}
    assert (await client.get("/v1/models", headers=headers)).json()["data"] == []
    body = {"chunks": [{"text": "a passage that is long enough"}]}
    assert (await client.post("/v1/chunks", json=body, headers=headers)).status_code == 403


async def test_registered_texts_are_found_by_their_own_project_only(client, post, keys, engine):
    texts = {project: keys.create(project)[1] for project in ("one", "other")}
    passage = "The town hall of Velmora was built in 1871."
    headers = {"x-api-key": texts["one"]}
    await client.post("/v1/chunks", json={"chunks": [{"text": passage}]}, headers=headers)
    message = [{"role": "user", "content": f"{passage} When was it built?"}]
    for project in ("one", "other"):
        await post(texts[project], messages=message)
    found = [any(s.role == "chunk" for s in prompt.segments) for prompt in engine.prompts]
    assert found == [True, False]
    assert len(set(engine.tenants)) == 2


async def test_too_many_requests_get_429_with_the_time_to_wait(post, keys):
    _, text = keys.create("app", quota=Quota(rpm=2))
    assert [(await post(text)).status_code for _ in range(3)] == [200, 200, 429]
    refused = await post(text)
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "2 requests a minute" in error["message"]
    assert 1 <= int(refused.headers["retry-after"]) <= 63


async def test_a_used_up_budget_is_told_and_not_worth_retrying(post, keys):
    _, text = keys.create("app", quota=Quota(budget_tokens=100))
    refused = await post(text, max_tokens=500)
    assert refused.json()["error"]["code"] == "insufficient_quota"
    assert "100 tokens a month" in refused.json()["error"]["message"]
    assert refused.headers["x-should-retry"] == "false"


async def test_what_an_answer_did_not_need_may_be_used_again(post, keys):
    _, text = keys.create("app", quota=Quota(tpm=400))
    for _ in range(3):  # each may need 300, and needs about 100
        assert (await post(text, max_tokens=200)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_recorded_without_its_text(post, keys, database, stream):
    key, text = keys.create("app")
    before = time.time()
    assert (await post(text, stream=stream)).status_code == 200
    (record,) = await records(database, 1)
    assert (record.project, record.key_id, record.model) == ("app", key.id, "org/words")
    assert (record.format, record.provider) == ("chat.completions", "kvweave")
    assert (record.status, record.error_code) == (200, None)
    assert (record.prompt_tokens > 0, record.completion_tokens) == (True, 6)
    assert before <= record.time <= time.time()
    assert 0 < record.ttft_s <= record.duration_s
    assert "built" not in str(record)


async def test_chunks_that_are_sent_ahead_are_recorded_and_charged(client, keys, database):
    _, text = keys.create("app", quota=Quota(tpm=100))
    body = {"chunks": [{"text": "p" * 70}]}
    statuses = [
        (await client.post("/v1/chunks", json=body, headers={"x-api-key": text})).status_code
        for _ in range(2)
    ]
    assert statuses == [200, 429]
    first, second = await records(database, 2)
    assert (first.format, first.status, first.prompt_tokens) == ("chunks", 200, 70)
    assert (second.status, second.error_code) == (429, "rate_limit_exceeded")


async def test_refused_and_failed_requests_are_recorded_with_their_error(post, engine, database):
    await post(model="org/wrods")
    engine.error, engine.error_after = RuntimeError("a defect"), 2
    await post(stream=True)
    await post()
    found = {(r.status, r.error_code, r.completion_tokens) for r in await records(database, 3)}
    assert found == {(404, "model_not_found", 0), (500, "internal_error", 2)}


async def test_a_client_that_hangs_up_is_recorded(base_url, engine, chat, database):
    engine.words, engine.delay_s = ["word "] * 1000, 0.02
    async with (
        httpx.AsyncClient() as client,
        client.stream("POST", f"{base_url}/v1/chat/completions", json=chat(stream=True)) as answer,
    ):
        await anext(answer.aiter_lines())
    (record,) = await records(database, 1)
    assert (record.status, record.error_code) == (499, "client_disconnected")


async def test_a_failed_request_costs_no_tokens(post, keys, engine):
    _, text = keys.create("app", quota=Quota(tpm=300))
    engine.error = RuntimeError("a defect")
    for _ in range(5):
        assert (await post(text, max_tokens=200)).status_code == 500


async def test_a_broken_database_is_503_and_not_let_in(post, keys, monkeypatch):
    from kvweave.accounts import AccountsError

    keys.create("app")

    def away(self):
        raise AccountsError("postgresql://me@secret-host is away")

    monkeypatch.setattr(KeyStore, "version", away)
    refused = await post()
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "accounts_unavailable")
    assert "secret-host" not in refused.text


async def test_a_limit_that_cannot_be_looked_up_is_503(post, keys, monkeypatch):
    from kvweave.accounts import AccountsError, SpentStore

    def away(self, *arguments):
        raise AccountsError("away")

    _, text = keys.create("app", quota=Quota(rpm=5))
    with monkeypatch.context() as patch:
        patch.setattr(SpentStore, "take", away)
        assert (await post(text)).status_code == 503
    assert (await post(text)).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_without_keys_loopback_may_be_served(host):
    check_exposure(host, has_keys=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_without_keys_nobody_else_may(host):
    with pytest.raises(ServerStartError, match=r"kvweave keys create.*or listen on 127\.0\.0\.1"):
        check_exposure(host, has_keys=False)
    check_exposure(host, has_keys=True)
