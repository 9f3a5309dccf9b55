"""The official client against a real server."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from kvweave.config import ServerConfig
from kvweave.engine import EngineOverloaded, EngineStopped

ANSWER = "It was built in 1871."
MESSAGES = [{"role": "user", "content": "When was it built?"}]


@pytest.fixture
def openai_client(base_url) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def test_a_whole_answer(openai_client):
    answer = openai_client.chat.completions.create(model="org/words", messages=MESSAGES)
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    assert answer.usage.model_extra["kvweave"]["mode"] == "blend"
    assert answer._request_id.startswith("req_")


def test_a_streamed_answer_comes_word_by_word(openai_client, engine):
    engine.delay_s = 0.02
    stream = openai_client.chat.completions.create(
        model="org/words",
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"kvweave": {"mode": "prefix"}},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    words = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert words == list(engine.words)
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == 6
    assert chunks[-1].usage.model_extra["kvweave"]["mode"] == "prefix"


def test_the_streaming_helper_accepts_the_stream(openai_client):
    with openai_client.chat.completions.stream(model="org/words", messages=MESSAGES) as stream:
        assert stream.get_final_completion().choices[0].message.content == ANSWER


async def test_the_async_client(base_url):
    async with openai.AsyncOpenAI(base_url=base_url, api_key="unused") as client:
        stream = await client.chat.completions.create(
            model="org/words", messages=MESSAGES, stream=True
        )
        text = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(text) == ANSWER


def test_models(openai_client):
    assert [model.id for model in openai_client.models.list()] == ["org/words"]
    assert openai_client.models.retrieve("org/words").owned_by == "kvweave"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EngineOverloaded(1), openai.RateLimitError),
        (EngineStopped(), openai.InternalServerError),
        (RuntimeError("boom"), openai.InternalServerError),
    ],
)
def test_engine_errors_are_the_clients_exceptions(openai_client, engine, error, expected, stream):
    engine.error = error
    with pytest.raises(expected) as caught:
        openai_client.chat.completions.create(model="org/words", messages=MESSAGES, stream=stream)
    assert caught.value.code in ("engine_overloaded", "engine_stopped", "internal_error")


def test_bad_requests_are_the_clients_exceptions(openai_client):
    create = openai_client.chat.completions.create
    with pytest.raises(openai.BadRequestError) as caught:
        create(model="org/words", messages=MESSAGES, temperature=3)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as caught:
        create(model="org/words", messages=MESSAGES, max_tokens=5000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as caught:
        create(model="words", messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError, match="Did you mean POST /v1/chat/completions"):
        openai_client.post("/chat/complete", body={}, cast_to=object)


def test_an_error_within_a_stream_is_the_clients_exception(openai_client, engine):
    engine.error = EngineStopped()
    engine.error_after = 2
    stream = openai_client.chat.completions.create(
        model="org/words", messages=MESSAGES, stream=True
    )
    with pytest.raises(openai.APIError, match="not running"):
        list(stream)


@pytest.mark.parametrize("limits", [ServerConfig(max_body_mb=1.0)])
def test_a_body_over_the_limit_is_answered_while_it_is_still_being_sent(openai_client):
    messages = [{"role": "user", "content": "x" * (6 * 2**20)}]
    with pytest.raises(openai.APIStatusError) as caught:
        openai_client.chat.completions.create(model="org/words", messages=messages)
    assert caught.value.status_code == 413
    assert caught.value.code == "request_too_large"
    assert openai_client.models.list().data
