"""Requests made from the server's own OpenAPI document: whatever they hold, none makes it fail."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvweave.api.openapi import openapi_schema

SCHEMA = schemathesis.openapi.from_dict(openapi_schema(has_engine=True))
OPERATIONS = [found.ok() for found in SCHEMA.get_all_operations()]
PREFIXES = st.sampled_from(["", "/api", "/v1"])
PROBLEM = "Traceback"

fuzz = settings(
    max_examples=settings().max_examples // 5,  # making them takes longer than answering them
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.filter_too_much,
        HealthCheck.too_slow,
    ],
)


@pytest.fixture
def send(app):
    """Sends one request in process; raises what the app raises."""

    async def send(**request: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.request(**request)

    return lambda **request: asyncio.run(send(**request))


@pytest.mark.parametrize("valid", [True, False], ids=["valid", "not valid"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.method} {o.path}".upper())
def test_no_request_makes_the_server_fail(send, operation, valid):
    mode = schemathesis.GenerationMode.POSITIVE if valid else schemathesis.GenerationMode.NEGATIVE
    if not valid and operation.method == "get":
        pytest.skip("there is nothing about it that could be wrong")

    @fuzz
    @given(
        case=operation.as_strategy(generation_mode=mode),
        prefix=PREFIXES,
        known=st.booleans(),
    )
    def check(case: schemathesis.Case, prefix: str, known: bool) -> None:
        request = case.as_transport_kwargs(base_url=f"http://server{prefix}")
        if known and isinstance(request.get("json"), dict):
            request["json"]["model"] = "org/words"  # or hardly any request would get far
        request = {k: v for k, v in request.items() if k in ("method", "url", "json", "params")}
        response = send(**request)
        assert response.status_code < 500, response.text
        assert PROBLEM not in response.text
        if response.status_code >= 400:
            assert response.json()["error"]["message"]

    check()
