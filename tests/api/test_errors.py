"""Every error is in OpenAI's format and says what is wrong."""

from __future__ import annotations

import logging

import pytest

from kvweave.config import ServerConfig
from kvweave.engine import EngineError, EngineOverloaded, EngineStopped

PATH = "/v1/chat/completions"


def error_of(response, status: int) -> dict[str, object]:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"].startswith("req_")
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert "Traceback" not in error["message"]
    return error


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"not json", b'{"a": NaN}', b"\xff\xfe", b"[" * 5000, b"[1]", b'"x"', b"null"],
)
async def test_a_body_that_is_not_a_json_object(client, raw):
    for path in (PATH, "/v1/chunks"):
        error = error_of(await client.post(path, content=raw), 400)
        assert error["code"] == "invalid_json"
        assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 3}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "king", "content": ""}]}, "messages[0].role"),
        ({"documents": [{"id": "a"}]}, "documents[0].text"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.01}, "top_p"),
        ({"seed": 0.5}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"stop": ["a", 5]}, "stop[1]"),
        ({"stop": list("abcde")}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"kvweave": {"mode": "fast"}}, "kvweave.mode"),
        ({"kvweave": {"recompute_ratio": 2}}, "kvweave.recompute_ratio"),
        ({"kvweave": {"selector": "best"}}, "kvweave.selector"),
        ({"kvweave": {"ratio": 0.1}}, "kvweave.ratio"),
        ({"kvweave": []}, "kvweave"),
    ],
)
async def test_a_wrong_value_is_an_error_that_names_the_field(client, chat, change, param):
    error = error_of(await client.post(PATH, json=chat(**change)), 400)
    assert error["param"] == param
    assert error["code"] == "invalid_value"
    assert error["message"]


async def test_a_missing_field_is_named(client):
    error = error_of(await client.post(PATH, json={"messages": []}), 400)
    assert error["message"] == "model: is missing"
    error = error_of(await client.post(PATH, json={"model": "org/words"}), 400)
    assert error["message"] == "messages: is missing"


async def test_a_wrong_value_is_shown(client, chat):
    error = error_of(await client.post(PATH, json=chat(temperature=7)), 400)
    assert error["message"] == "temperature: input should be less than or equal to 2, got 7"
    error = error_of(await client.post(PATH, json=chat(temperature="x" * 5000)), 400)
    assert len(error["message"]) < 200


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2},
        {"n": True},
        {"logprobs": True},
        {"top_logprobs": 5},
        {"tool_choice": "required"},
        {"functions": [{}]},
        {"response_format": {"type": "json_object"}},
        {"logit_bias": {"50": 1}},
        {"presence_penalty": 0.5},
        {"frequency_penalty": -1},
        {"modalities": ["text", "audio"]},
        {"audio": {}},
    ],
)
async def test_an_unsupported_parameter_is_named(client, chat, change):
    error = error_of(await client.post(PATH, json=chat(**change)), 400)
    (name,) = change
    assert error["param"] == name
    assert error["code"] == "unsupported_parameter"
    assert error["message"].startswith(f"{name}: not supported; leave it out")


async def test_a_misspelt_model_is_not_found_and_the_nearest_is_named(client, chat):
    for response in (
        await client.post(PATH, json=chat(model="org/word")),
        await client.get("/v1/models/org/word"),
    ):
        error = error_of(response, 404)
        assert error["code"] == "model_not_found"
        assert error["param"] == "model"
        assert "'org/words'" in error["message"]


async def test_a_prompt_that_is_too_long_is_refused_with_the_numbers(client, chat):
    messages = [{"role": "user", "content": "x" * 3000}]
    error = error_of(await client.post(PATH, json=chat(messages=messages, stream=True)), 400)
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"
    assert "3019 in the prompt, 1 for the answer" in error["message"]
    assert "2000" in error["message"]


async def test_too_large_a_max_tokens_is_refused_with_the_numbers(client, chat):
    error = error_of(await client.post(PATH, json=chat(max_tokens=2000)), 400)
    assert error["code"] == "context_length_exceeded"
    assert "2000 for the answer" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_overloaded_engine_is_429_with_retry_after(client, engine, chat, stream):
    engine.error = EngineOverloaded(2.3)
    response = await client.post(PATH, json=chat(stream=stream))
    assert error_of(response, 429)["code"] == "engine_overloaded"
    assert response.headers["retry-after"] == "3"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stopped_engine_is_503(client, engine, chat, stream):
    engine.error = EngineStopped()
    response = await client.post(PATH, json=chat(stream=stream))
    assert error_of(response, 503)["code"] == "engine_stopped"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("error", [RuntimeError("secret detail"), EngineError("secret detail")])
async def test_an_unexpected_error_is_logged_with_the_request_id_and_not_shown(
    client, engine, chat, caplog, stream, error
):
    engine.error = error
    with caplog.at_level(logging.ERROR):
        response = await client.post(PATH, json=chat(stream=stream))
    error = error_of(response, 500)
    assert error["code"] == "internal_error"
    assert "secret" not in response.text
    request_id = response.headers["x-request-id"]
    assert request_id in error["message"]
    (record,) = [r for r in caplog.records if request_id in r.getMessage()]
    assert "secret detail" in record.exc_text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineStopped(), "engine_stopped"),
        (RuntimeError("secret detail"), "internal_error"),
        (OSError("secret detail"), "internal_error"),
    ],
)
async def test_an_error_after_the_first_delta_ends_the_stream_as_an_error_event(
    client, engine, chat, error, code
):
    engine.error = error
    engine.error_after = 2
    response = await client.post(PATH, json=chat(stream=True))
    assert response.status_code == 200
    assert f'"code":"{code}"' in response.text.strip().split("\n\n")[-1]
    assert "secret" not in response.text
    assert "[DONE]" not in response.text


async def test_an_error_after_the_first_delta_is_an_error_status_for_a_whole_answer(
    client, engine, chat
):
    engine.error = EngineStopped()
    engine.error_after = 2
    assert error_of(await client.post(PATH, json=chat()), 503)["code"] == "engine_stopped"


@pytest.mark.parametrize("limits", [ServerConfig(max_body_mb=1.0)])
async def test_a_body_over_the_limit_is_413(client, chat):
    body = chat(messages=[{"role": "user", "content": "x" * 2**20}])
    error = error_of(await client.post(PATH, json=body), 413)
    assert error["code"] == "request_too_large"
    assert "1 MB" in error["message"]


async def test_each_request_has_an_id_of_its_own(client, chat):
    ids = {(await client.post(PATH, json=chat())).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
