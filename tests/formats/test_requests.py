"""Requests as the coding agents and RAG clients send them, in every backend's format."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params
from pydantic import TypeAdapter

from kvweave.formats import (
    BACKEND_FORMATS,
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    FormatError,
)

FOLDER = Path(__file__).parent / "requests"
RECORDED = {
    "claude_code": MESSAGES,
    "documents": MESSAGES,
    "codex": RESPONSES,
    "cline": CHAT,
    "cline_cli": CHAT,
    "cline_cli_responses": RESPONSES,
    "continue_cli": CHAT,
}
PARAMS: dict[str, TypeAdapter[Any]] = {
    "chat": TypeAdapter(
        chat_params.CompletionCreateParamsNonStreaming | chat_params.CompletionCreateParamsStreaming
    ),
    "messages": TypeAdapter(MessageCreateParamsNonStreaming | MessageCreateParamsStreaming),
    "responses": TypeAdapter(
        responses_params.ResponseCreateParamsNonStreaming
        | responses_params.ResponseCreateParamsStreaming
    ),
}


def recorded(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text())


def as_chat(name: str) -> dict[str, Any]:
    return CHAT.write_request(RECORDED[name].read_request(recorded(name)))


def plain(value: Any) -> Any:
    """Validated parameters as plain values: iterables of the params' types are read lazily."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, str | int | float | bool | None):
        return value
    return [plain(item) for item in value]


@pytest.mark.parametrize("backend", BACKEND_FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_request_is_what_the_backends_official_client_would_send(name, backend):
    if (name, backend.name) == ("documents", "responses"):
        pytest.skip("Responses know no stop strings")
    body = backend.write_request(RECORDED[name].read_request(recorded(name)))
    params = PARAMS[backend.name].validate_python(body)
    assert plain(params)["model"] == recorded(name)["model"]


@pytest.mark.parametrize("backend", BACKEND_FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("name", RECORDED)
def test_a_request_there_and_back_is_the_same_to_a_third_format(name, backend):
    if (name, backend.name) == ("documents", "responses"):
        pytest.skip("Responses know no stop strings")
    request = RECORDED[name].read_request(recorded(name))
    again = backend.read_request(backend.write_request(request))
    first, second = CHAT.write_request(request), CHAT.write_request(again)
    assert turns(second) == turns(first)
    for key in ("model", "temperature", "top_p", "stream"):
        assert second.get(key) == first.get(key), key
    assert functions(second) == functions(first)


def turns(body: dict[str, Any]) -> list[str]:
    """Who speaks: Anthropic knows no two turns of one role in a row."""
    return [role for role, _ in groupby(message["role"] for message in body["messages"])]


def functions(body: dict[str, Any]) -> list[tuple[str, Any]]:
    found = [tool["function"] for tool in body.get("tools", [])]
    return [(function["name"], function["parameters"]) for function in found]


def test_claude_codes_turns_are_messages_with_tool_results_of_their_own():
    body = as_chat("claude_code")
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    system, user, assistant, result, failed, last = body["messages"]
    assert system["content"].startswith("You are a coding agent in a terminal.\n\nWorking")
    assert [part["type"] for part in user["content"]] == ["text", "text", "image_url"]
    assert user["content"][2]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert assistant["content"] == "I'll look."
    assert [call["id"] for call in assistant["tool_calls"]] == ["toolu_01A", "toolu_01B"]
    arguments = json.loads(assistant["tool_calls"][1]["function"]["arguments"])
    assert arguments == {"command": 'wc -l "/srv/mill/stones.txt"'}
    assert (result["tool_call_id"], result["content"]) == ("toolu_01A", "1\tgranite\n2\tbasalt")
    assert "no such file" in failed["content"]
    assert last["content"] == "Go on."


def test_a_user_id_that_is_too_long_for_others_is_left_out():
    body = recorded("claude_code")
    assert as_chat("claude_code")["user"] == "user_1_account__session_2"
    body["metadata"] = {"user_id": "x" * 65}
    assert MESSAGES.read_request(body).user is None


def test_a_system_message_within_the_conversation_stays_where_it_is():
    turns = [("user", "a"), ("system", "b"), ("assistant", "c"), ("user", "d")]
    body = {
        "model": "m",
        "max_tokens": 5,
        "messages": [{"role": role, "content": text} for role, text in turns],
    }
    messages = CHAT.write_request(MESSAGES.read_request(body))["messages"]
    assert [(m["role"], m["content"]) for m in messages] == turns


def test_tools_that_anthropic_runs_are_left_out_for_others():
    names = [tool["function"]["name"] for tool in as_chat("claude_code")["tools"]]
    assert names == ["Bash", "Read"]


def test_parts_for_anthropic_alone_do_not_reach_others():
    text = json.dumps(as_chat("claude_code"))
    for key in ("cache_control", "thinking", "signature", "context_management", "web_search"):
        assert key not in text


def test_codex_calls_belong_to_the_assistants_turn_before_them():
    body = as_chat("codex")
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "user", "assistant", "tool", "assistant", "tool"]
    assert body["messages"][0]["content"].endswith("<permissions>read-only</permissions>")
    assert body["messages"][3]["content"] == "I'll look first."
    assert body["messages"][3]["tool_calls"][0]["id"] == "call_1"
    patch = json.loads(body["messages"][5]["tool_calls"][0]["function"]["arguments"])
    assert patch["input"].startswith("*** Begin Patch")
    assert body["messages"][6] == {"role": "tool", "tool_call_id": "call_2", "content": "Done!"}


def test_codex_free_text_tool_is_a_function_with_one_text():
    shell, patch = as_chat("codex")["tools"]
    assert shell["function"]["parameters"]["required"] == ["command"]
    assert patch["function"]["parameters"]["required"] == ["input"]
    assert "*** Begin Patch" in patch["function"]["description"]


def test_clines_conversation_is_anthropics_turns():
    body = MESSAGES.write_request(CHAT.read_request(recorded("cline")))
    assert body["system"] == [
        {"type": "text", "text": "You are Cline, a coding agent in an editor."}
    ]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    user, assistant, results = (turn["content"] for turn in body["messages"])
    assert [block["type"] for block in user] == ["text", "text", "image"]
    assert user[2]["source"]["media_type"] == "image/png"
    assert [block["type"] for block in assistant] == ["text", "tool_use", "tool_use"]
    assert assistant[1]["input"] == {"path": "stones.txt"}
    assert [block["tool_use_id"] for block in results] == ["call_1", "call_2"]
    assert body["max_tokens"] == 4096


def test_clines_two_ways_to_ask_are_the_same_request():
    """Tools that OpenAI runs are left out; all else, nullable arguments too, is the same."""
    chat, response = (
        format.read_request(recorded(name)).model_dump(exclude_none=True)
        for name, format in (("cline_cli", CHAT), ("cline_cli_responses", RESPONSES))
    )
    for body in (chat, response):
        for message in body["messages"]:
            if isinstance(message.get("content"), list):
                (part,) = message["content"]
                message["content"] = part["text"]
    for name in ("messages", "tools", "tool_choice"):
        assert response[name] == chat[name]


def test_a_call_without_any_text_is_one_block_of_anthropics():
    for name in ("cline_cli", "continue_cli"):
        _, turn, results = MESSAGES.write_request(CHAT.read_request(recorded(name)))["messages"]
        assert [block["type"] for block in turn["content"]] == ["tool_use"]
        assert [block["type"] for block in results["content"]] == ["tool_result"]


def test_documents_are_documents_to_anthropic_and_text_to_others():
    request = MESSAGES.read_request(recorded("documents"))
    parts = [part.type for part in request.messages[1].parts]
    assert parts == ["document", "document", "document", "text"]
    texts = [part["text"] for part in as_chat("documents")["messages"][1]["content"]]
    assert texts == [
        "Mill\nThe mill was built in 1871.\n",
        "It was sold in 1872.\nThe parish bought it.\n",
        "History (https://mill.example/)\nIt burnt down in 1900.\n",
        "When was it sold?",
    ]
    blocks = MESSAGES.write_request(request)["messages"][0]["content"]
    assert [block["type"] for block in blocks] == ["document"] * 3 + ["text"]


@pytest.mark.parametrize("client", [CHAT, RESPONSES], ids=lambda f: f.name)
def test_documents_beside_the_messages_reach_every_backend(client):
    document = {"id": "d1", "title": "Mill", "text": "Built in 1871."}
    body = {
        "model": "m",
        "documents": [document],
        "kvweave": {"mode": "full"},
    }
    asked = [{"role": "user", "content": "When?"}]
    body |= {"messages": asked} if client is CHAT else {"input": "When?"}
    request = client.read_request(body)
    for backend in BACKEND_FORMATS:
        written = json.dumps(backend.write_request(request))
        assert "Built in 1871." in written and written.index("Built") < written.index("When?")
        assert '"kvweave"' not in written and '"documents"' not in written
    with pytest.raises(FormatError) as caught:
        client.read_request(body | {"documents": [{"id": "d1"}]})
    assert caught.value.path == "documents[0].text"


def test_marks_reach_anthropic_and_the_engine():
    body = {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
            }
        ],
    }
    block = MESSAGES.write_request(CHAT.read_request(body))["messages"][0]["content"][0]
    assert block["cache_control"] == {"type": "ephemeral"}


@pytest.mark.parametrize(
    ("format", "change", "path"),
    [
        (MESSAGES, {"max_tokens": None}, "max_tokens"),
        (MESSAGES, {"messages": []}, "messages"),
        (MESSAGES, {"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        (
            MESSAGES,
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
        ),
        (
            MESSAGES,
            {"messages": [{"role": "assistant", "content": [{"type": "image", "source": {
                "type": "url", "url": "https://x/"}}]}]},
            "messages[0].content[0].type",
        ),
        (MESSAGES, {"tool_choice": {"type": "tool", "name": "web_search"}}, "tool_choice.name"),
        (MESSAGES, {"temperature": 1.5}, "temperature"),
        (RESPONSES, {"input": 5}, "input"),
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
         "input[0].content[0].text"),
        (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"),
        (RESPONSES, {"background": True}, "background"),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        (RESPONSES, {"tool_choice": {"type": "web_search"}}, "tool_choice"),
        (RESPONSES, {"tools": [{"type": "function"}]}, "tools[0].name"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
         "messages[0].content[0]"),
        (CHAT, {"max_tokens": 0}, "max_tokens"),
        (COMPLETIONS, {"prompt": ["a", "b"]}, "prompt"),
        (COMPLETIONS, {"prompt": "a", "n": 2}, "n"),
        (COMPLETIONS, {"prompt": "a", "echo": True}, "echo"),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_is_named(format, change, path):
    good = {
        "messages": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]},
        "responses": {"model": "m", "input": "x"},
        "chat": {"model": "m", "messages": [{"role": "user", "content": "x"}]},
        "completions": {"model": "m", "prompt": "x"},
    }[format.name]
    with pytest.raises(FormatError) as caught:
        format.read_request(good | change)
    assert caught.value.path == path
    assert caught.value.message


@pytest.mark.parametrize(
    ("backend", "change"),
    [
        (MESSAGES, {"n": 2}),
        (MESSAGES, {"response_format": {"type": "json_object"}}),
        (MESSAGES, {"frequency_penalty": 1}),
        (RESPONSES, {"stop": ["x"]}),
        (RESPONSES, {"logit_bias": {"5": 1}}),
    ],
)
def test_what_a_backend_cannot_do_is_named(backend, change):
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}]} | change
    with pytest.raises(FormatError) as caught:
        backend.write_request(CHAT.read_request(body))
    assert caught.value.path == next(iter(change))
    assert caught.value.code == "unsupported_parameter"


def test_sampling_parameters_arrive():
    body = MESSAGES.write_request(
        CHAT.read_request(
            {
                "model": "m",
                "messages": [{"role": "user", "content": "x"}],
                "max_completion_tokens": 7,
                "temperature": 1.7,
                "top_p": 0.5,
                "stop": "END",
                "user": "kim",
                "parallel_tool_calls": False,
                "tools": [{"type": "function", "function": {"name": "f"}}],
            }
        )
    )
    assert body["max_tokens"] == 7
    assert body["temperature"] == 1.0  # the most Anthropic knows
    assert body["stop_sequences"] == ["END"]
    assert body["metadata"] == {"user_id": "kim"}
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_a_schema_for_the_answer_arrives():
    schema = {"type": "object", "properties": {"year": {"type": "integer"}}}
    wanted = {"name": "year", "schema": schema, "strict": True}
    request = RESPONSES.read_request(
        {"model": "m", "input": "x", "text": {"format": {"type": "json_schema", **wanted}}}
    )
    assert request.response_format == {"type": "json_schema", "json_schema": wanted}
    assert MESSAGES.write_request(request)["output_config"]["format"]["schema"] == schema
    assert RESPONSES.write_request(request)["text"]["format"]["schema"] == schema
