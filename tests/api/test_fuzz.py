"""Whatever body is sent, the server answers it or names what is wrong; it never fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
TEXT = st.text(max_size=60) | st.sampled_from(["<|im_end|>", "\ue000", "lodge " * 20])
PART = st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}) | JSON
MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]) | JSON,
        "content": TEXT | st.lists(PART, max_size=4) | JSON,
    }
)
DOCUMENT = st.fixed_dictionaries({"text": TEXT}, optional={"id": TEXT | JSON, "title": TEXT | JSON})
REUSE = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["blend", "full", "x"]),
        "recompute_ratio": st.floats(-1, 2),
        "selector": TEXT,
        "first_token_logprobs": st.booleans(),
        "unknown": JSON,
    },
)
CHAT = st.fixed_dictionaries(
    {"model": st.just("org/words") | JSON, "messages": st.lists(MESSAGE, max_size=4) | JSON},
    optional={
        "documents": st.lists(DOCUMENT, max_size=3) | JSON,
        "max_tokens": st.integers(-1, 3000) | JSON,
        "temperature": st.floats(-1, 3) | JSON,
        "top_p": st.floats(-1, 2) | JSON,
        "seed": st.integers() | JSON,
        "stop": st.lists(TEXT, max_size=5) | TEXT | JSON,
        "stream": st.booleans() | JSON,
        "stream_options": st.fixed_dictionaries({"include_usage": JSON}) | JSON,
        "n": JSON,
        "tools": JSON,
        "logprobs": JSON,
        "response_format": JSON,
        "kvweave": REUSE | JSON,
    },
)
CHUNK = st.fixed_dictionaries({"text": TEXT}, optional={"id": TEXT | JSON})
CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "chunks": st.lists(CHUNK | JSON, max_size=3) | JSON,
        "documents": st.lists(DOCUMENT, max_size=3) | JSON,
        "system": TEXT | JSON,
    },
)

Post = Callable[..., httpx.Response]

# One app serves all examples of a test; what they register adds to the fuzz.
fuzz = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150
)


@pytest.fixture
def post(app) -> Post:
    """Sends one request in process, and checks what holds of every answer."""

    async def send(path: str, **body: object) -> httpx.Response:
        # Raises what the app raises.
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.post(f"http://server{path}", **body)

    def checked(path: str, **body: object) -> httpx.Response:
        response = asyncio.run(send(path, **body))
        assert response.status_code in (200, 400, 404)
        if response.status_code != 200:
            error = response.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}
            assert error["message"]
        return response

    return checked


@fuzz
@given(body=CHAT)
def test_chat_completions_never_fail(post, body):
    response = post("/v1/chat/completions", json=body)
    if response.status_code == 200:
        assert "finish_reason" in response.text


@fuzz
@given(body=CHUNKS)
def test_chunks_never_fail(post, body):
    post("/v1/chunks", json=body)


@fuzz
@given(raw=st.binary(max_size=80) | JSON.map(repr).map(str.encode))
def test_bodies_that_may_not_be_json_never_fail(post, raw):
    for path in ("/v1/chat/completions", "/v1/chunks"):
        assert post(path, content=raw).status_code == 400


def test_lone_surrogates_never_fail(post):
    raw = b'{"model": "org/words", "messages": [{"role": "user", "content": "\\ud800"}]}'
    assert post("/v1/chat/completions", content=raw).status_code == 400
