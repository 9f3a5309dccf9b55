"""Where the endpoints answer, and what everything else is told."""

from __future__ import annotations

import pytest

PREFIXES = ["", "/v1", "/api", "/api/v1", "/v1/v1", "//v1"]
READ = ["/models", "/models/org/words", "/models/org%2Fwords", "/health", "/metrics"]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("slash", ["", "/"])
async def test_every_endpoint_answers_under_every_prefix(client, chat, prefix, slash):
    base = f"http://server{prefix}"
    for path in READ:
        assert (await client.get(f"{base}{path}{slash}")).status_code == 200, path
        assert (await client.head(f"{base}{path}{slash}")).status_code == 200, path
    response = await client.post(f"{base}/chat/completions{slash}?beta=true", json=chat())
    assert response.status_code == 200
    response = await client.post(f"{base}/chunks{slash}", json={"chunks": [{"text": "x"}]})
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("POST", "/v1/chat/completion", "POST /v1/chat/completions"),
        ("POST", "/v1/chat/completions/chat/completions", "POST /v1/chat/completions"),
        ("POST", "/completion", "POST /v1/completions"),
        ("GET", "/v1/model", "GET /v1/models"),
        ("GET", "/api/healthz", "GET /v1/health"),
        ("POST", "/v1/chunk", "POST /v1/chunks"),
    ],
)
async def test_an_unknown_path_is_404_and_names_the_right_one(client, method, path, right):
    response = await client.request(method, path, json={})
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["code"] == "unknown_url"
    assert f"Did you mean {right}?" in error["message"]
    assert f"{method} {path}." in error["message"]


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/favicon.ico", "/docs"])
async def test_there_is_nothing_else(client, path):
    response = await client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "unknown_url"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/chunks/", "POST"),
        ("POST", "/api/v1/models", "GET"),
        ("PUT", "/health", "GET"),
    ],
)
async def test_a_wrong_method_is_405_and_names_the_right_one(client, method, path, allowed):
    response = await client.request(method, path)
    assert response.status_code == 405
    assert allowed in response.headers["allow"]
    error = response.json()["error"]
    assert error["code"] == "method_not_allowed"
    assert f"use {allowed}" in error["message"]


async def test_models(client):
    models = (await client.get("/v1/models")).json()
    assert models["object"] == "list"
    (model,) = models["data"]
    assert model["id"] == "org/words"
    assert model["object"] == "model"
    assert isinstance(model["created"], int)
    assert model["owned_by"] == "kvweave"
    assert (await client.get("/v1/models/org/words")).json() == model


async def test_health(client):
    expected = {"status": "ok", "model": "org/words", "pending_chunks": 3}
    assert (await client.get("/health")).json() == expected


async def test_metrics_are_in_prometheus_text_format(client):
    response = await client.get("/metrics")
    assert response.text == "kvweave_requests_total 1.0\n"
    assert response.headers["content-type"].startswith("text/plain; version=")


async def test_the_openapi_document_names_every_endpoint(client, app):
    document = (await client.get("/v1/openapi.json")).json()
    described = {(method, path.removeprefix("/v1")) for path, item in document["paths"].items()
                 for method in item}  # fmt: skip
    wrong = (await client.get("/nowhere")).json()["error"]["message"]
    answered = wrong.partition("This server answers ")[2].partition(";")[0].split(", ")
    names = {path.replace(":path", "") for path in (a.removeprefix("GET ") for a in answered)}
    names = {path.removeprefix("POST ").removeprefix("/v1") for path in names}
    assert {path for _, path in described} == names
