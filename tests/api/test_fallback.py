"""One server in front of another: a provider answers where the engine cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from kvweave.api import LocalModel, create_app
from kvweave.config import ProviderConfig
from kvweave.engine import EngineOverloaded, EngineStopped
from kvweave.prompt import PromptBuilder
from kvweave.providers import Channel, Router

CHAT = "/v1/chat/completions"


@pytest.fixture
async def front(
    base_url, tokenizer, registry, accounts, engine
) -> AsyncIterator[httpx.AsyncClient]:
    """A server with a busy engine, in front of the server at `base_url`, which has the same."""
    busy = type(engine)(error=EngineOverloaded(1))
    table = ProviderConfig(
        name="behind",
        kind="kvweave",
        base_url=base_url,
        models={"org/words": "org/words", "alias": "org/words"},
    )
    channel = Channel(Router.from_config([table]))
    local = LocalModel(busy, PromptBuilder(tokenizer, registry=registry), registry)
    app = create_app(local, lambda: b"", accounts, channel=channel)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://front") as client:
        client.busy = busy
        yield client
    await channel.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("error", [EngineOverloaded(1), EngineStopped()])
async def test_a_provider_takes_over_while_the_engine_is_busy(front, engine, chat, error, stream):
    front.busy.error = error
    response = await front.post(CHAT, json=chat(stream=stream, kvweave={"mode": "prefix"}))
    assert response.status_code == 200
    assert "1871" in response.text
    assert len(front.busy.prompts) == 1
    assert engine.reuse[0].mode == "prefix"  # what is kvweave's own went with it


async def test_the_engine_answers_first_where_it_can(front, engine, chat):
    front.busy.error = None
    assert (await front.post(CHAT, json=chat())).status_code == 200
    assert engine.prompts == []


async def test_a_wrong_request_is_not_sent_on(front, engine, chat):
    response = await front.post(CHAT, json=chat(temperature=7))
    assert response.status_code == 400
    assert engine.prompts == []


async def test_what_was_reused_behind_is_told_in_front(front, chat):
    response = await front.post(CHAT, json=chat(model="alias"))
    assert response.json()["usage"]["kvweave"]["mode"] == "blend"


async def test_both_are_listed_with_their_owners(front):
    models = (await front.get("/v1/models")).json()["data"]
    assert [(m["id"], m["owned_by"]) for m in models] == [
        ("org/words", "kvweave"),
        ("alias", "behind"),
    ]
    health = (await front.get("/health")).json()
    assert health["model"] == "org/words"
    assert health["providers"]["behind"]["ok"]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_a_server_behind_gets_every_format_as_it_is(front, engine, path):
    body = {"model": "alias", "max_tokens": 9, "input": "x"}
    messages = {"messages": [{"role": "user", "content": "x"}]}
    response = await front.post(path, json=body | messages)
    assert response.status_code == 200
    assert "1871" in response.text
