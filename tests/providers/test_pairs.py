"""Every official client against every kind of provider, streaming and not, with tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import anthropic
import openai
import pytest

from kvweave.formats import Answer, ToolCall, Usage

PROVIDERS = {
    "chat": {"kind": "openai"},
    "responses": {"kind": "openai", "responses": "only"},
    "messages": {"kind": "anthropic"},
    "kvweave": {"kind": "kvweave"},
    "ollama": {"kind": "ollama"},
}
CLIENTS = ["chat", "messages", "responses"]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TEXT = "It was built in 1871."
TOOL_TEXT = "Let me see."
CALLS = [("read", {"path": "stones.txt"}), ("list", {})]


class Clients:
    """Asks the same of each API; gives text, calls as name and arguments, and cached tokens."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._gpt = stack.enter_context(
            openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
        )
        self._claude = stack.enter_context(
            anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0)
        )

    def chat(self, stream: bool) -> tuple[str, list[Any], int]:
        function = {"name": "read", "parameters": SCHEMA}
        asked = {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "When?"},
            ],
            "tools": [{"type": "function", "function": function}],
        }
        if stream:
            options = {"include_usage": True}
            with self._gpt.chat.completions.stream(**asked, stream_options=options) as events:
                done = events.get_final_completion()
        else:
            done = self._gpt.chat.completions.create(**asked)
        message = done.choices[0].message
        calls = [c.function for c in message.tool_calls or []]
        assert done.choices[0].finish_reason == ("tool_calls" if calls else "stop")
        found = [(call.name, json.loads(call.arguments)) for call in calls]
        return message.content, found, done.usage.prompt_tokens_details.cached_tokens

    def messages(self, stream: bool) -> tuple[str, list[Any], int]:
        asked = {
            "model": "m",
            "max_tokens": 100,
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "When?"}],
            "tools": [{"name": "read", "input_schema": SCHEMA}],
        }
        if stream:
            with self._claude.messages.stream(**asked) as events:
                done = events.get_final_message()
        else:
            done = self._claude.messages.create(**asked)
        calls = [block for block in done.content if block.type == "tool_use"]
        assert done.stop_reason == ("tool_use" if calls else "end_turn")
        text = "".join(block.text for block in done.content if block.type == "text")
        found = [(call.name, call.input) for call in calls]
        return text, found, done.usage.cache_read_input_tokens

    def responses(self, stream: bool) -> tuple[str, list[Any], int]:
        asked = {
            "model": "m",
            "instructions": "Be brief.",
            "input": "When?",
            "tools": [{"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}],
        }
        if stream:
            with self._gpt.responses.stream(**asked) as events:
                done = events.get_final_response()
        else:
            done = self._gpt.responses.create(**asked)
        assert done.status == "completed"
        calls = [item for item in done.output if item.type == "function_call"]
        found = [(call.name, json.loads(call.arguments)) for call in calls]
        return done.output_text, found, done.usage.input_tokens_details.cached_tokens


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("tools", [False, True], ids=["text", "tools"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", PROVIDERS)
def test_any_client_gets_any_providers_answer(
    stub, serve, provider_table, records, stack, kind, client, stream, tools
):
    provider = stub()
    if tools:
        provider.answer = Answer(
            "chatcmpl-2", "upstream-model", 1_700_000_000, TOOL_TEXT, "tool_calls",
            Usage(prompt_tokens=120, cached_tokens=100, completion_tokens=9),
            tool_calls=tuple(
                ToolCall(f"call_{name}", name, json.dumps(arguments)) for name, arguments in CALLS
            ),
        )  # fmt: skip
    url = serve(provider_table(provider.url, **PROVIDERS[kind]))
    text, calls, cached = getattr(Clients(url, stack), client)(stream)
    assert (text, calls) == (TOOL_TEXT, CALLS) if tools else (TEXT, [])
    assert cached == 100
    record = records.one()
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (120, 100, 9)
    assert (record.provider, record.status, record.model) == ("first", 200, "m")
    assert record.ttft_s is not None
    (got,) = provider.got
    expected = {
        "chat": "/v1/chat/completions",
        "ollama": "/v1/chat/completions",
        "messages": "/v1/messages",
        "responses": "/v1/responses",
        "kvweave": {"chat": "/v1/chat/completions"}.get(client, f"/v1/{client}"),
    }[kind]
    assert got.path == expected
    assert "Be brief." in got.raw.decode()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", PROVIDERS)
def test_text_completions_reach_every_provider(stub, serve, provider_table, kind, stream):
    provider = stub()
    url = serve(provider_table(provider.url, **PROVIDERS[kind]))
    with openai.OpenAI(base_url=url, api_key="unused", max_retries=0) as client:
        done = client.completions.create(model="m", prompt="Once", max_tokens=20, stream=stream)
        pieces = list(done) if stream else [done]
    assert "".join(piece.choices[0].text for piece in pieces) == TEXT


@pytest.mark.parametrize(
    "name",
    ["claude_code", "codex", "cline", "cline_cli", "cline_cli_responses", "continue_cli"],
)
@pytest.mark.parametrize("kind", PROVIDERS)
def test_the_coding_agents_requests_are_streamed_from_every_provider(
    stub, serve, provider_table, kind, name, request
):
    import httpx

    folder = request.path.parent.parent / "formats" / "requests"
    body = json.loads((folder / f"{name}.json").read_text()) | {"model": "m"}
    path, last = {
        "claude_code": ("/v1/messages?beta=true", "event: message_stop"),
        "codex": ("/v1/responses", "event: response.completed"),
        "cline_cli_responses": ("/v1/responses", "event: response.completed"),
    }.get(name, ("/v1/chat/completions", "data: [DONE]"))
    url = serve(provider_table(stub().url, **PROVIDERS[kind]))
    answer = httpx.post(f"{url}{path}", json=body, headers={"anthropic-beta": "a,b"})
    assert answer.status_code == 200, answer.text
    assert answer.text.strip().split("\n\n")[-1].startswith(last)
