"""`POST /v1/explain` and `GET /v1/quality`."""

from __future__ import annotations

import httpx
import pytest

MESSAGES = [{"role": "user", "content": "When was it built?"}]


@pytest.fixture
async def http(app):
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        yield http


async def test_a_prompt_is_explained_without_being_answered(http, engine):
    body = {"messages": MESSAGES, "kvweave": {"recompute_ratio": 0.3}}
    response = await http.post("/v1/explain", json=body)
    assert response.status_code == 200
    assert response.json()["selector"] == "query_attention"
    assert response.json()["model"] == engine.model_name
    assert engine.reuse[0].recompute_ratio == 0.3
    assert engine.finished == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"messages": []}, 400),
        ({"messages": MESSAGES, "model": "another"}, 404),
        ({"messages": MESSAGES, "kvweave": {"unknown": 1}}, 400),
    ],
)
async def test_what_cannot_be_explained_is_an_error(http, body, status):
    response = await http.post("/v1/explain", json=body)
    assert response.status_code == status
    assert response.json()["error"]["message"]


async def test_quality_is_shown(http):
    response = await http.get("/v1/quality")
    assert response.json() == {"serving": "reuse"}


async def test_an_engine_without_a_guard_says_so(http, engine, monkeypatch):
    monkeypatch.setattr(type(engine), "quality", lambda self: None)
    response = await http.get("/v1/quality")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "no_quality_guard"
