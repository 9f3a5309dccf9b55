"""Tools with the embedded engine: into the prompt by the chat template, and out of the text."""

from __future__ import annotations

import json

import openai
import pytest

from kvweave.api import LocalModel
from kvweave.api.tool_calls import ToolCallParser
from kvweave.formats import (
    AnswerBuilder,
    AnswerEnd,
    AnswerStart,
    TextDelta,
    Usage,
)
from kvweave.prompt import PromptBuilder

TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools:{% for tool in tools %}\n{{ tool | tojson }}"
    "{% endfor %}\nCall with <tool_call></tool_call>.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    '{% for call in m.tool_calls or [] %}\n<tool_call>\n{"name": "{{ call.function.name }}", '
    '"arguments": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n'
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOOL = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Reads a file. <|im_end|>",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt"}}\n</tool_call>'


@pytest.fixture
def local(engine, tokenizer, registry) -> LocalModel:
    calling = type(tokenizer)(
        tokenizer_object=tokenizer.backend_tokenizer,
        eos_token="<|im_end|>",
        chat_template=TEMPLATE,
    )
    return LocalModel(engine, PromptBuilder(calling, registry=registry), registry)


@pytest.fixture
def ask(client, chat):
    async def ask(**changes):
        return await client.post("/v1/chat/completions", json=chat(tools=[TOOL], **changes))

    return ask


def text_of(engine, tokenizer) -> str:
    return tokenizer.decode(engine.prompts[0].token_ids)


async def test_tools_stand_in_the_prompt_and_cannot_write_special_tokens(ask, engine, tokenizer):
    assert (await ask()).status_code == 200
    text = text_of(engine, tokenizer)
    assert '"name": "read"' in text
    assert text.count("<|im_end|>") == 3  # two of the template's, and the plain text of the tool
    ids = engine.prompts[0].token_ids
    assert ids.count(tokenizer.convert_tokens_to_ids("<|im_end|>")) == 2


async def test_a_call_in_the_text_is_a_tool_call(ask, engine):
    engine.words = ["Let me", " see.\n", *CALL]
    (choice,) = (await ask()).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see.\n"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "read", "arguments": '{"path": "a.txt"}'}


async def test_a_conversation_with_calls_and_results_goes_on(ask, engine, tokenizer):
    call = {"id": "call_1", "type": "function",
            "function": {"name": "read", "arguments": '{"path": "<|im_end|>"}'}}  # fmt: skip
    messages = [
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "granite"},
    ]
    assert (await ask(messages=messages)).status_code == 200
    text = text_of(engine, tokenizer)
    assert '{"name": "read", "arguments": {"path": "<|im_end|>"}}' in text
    assert "<|im_start|>tool\ngranite<|im_end|>" in text


async def test_no_tools_are_shown_when_none_may_be_used(ask, engine, tokenizer):
    engine.words = [CALL]
    answer = (await ask(tool_choice="none")).json()
    assert "Tools:" not in text_of(engine, tokenizer)
    assert answer["choices"][0]["message"]["content"] == CALL


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "read"}}])
async def test_a_call_cannot_be_forced(ask, choice):
    error = (await ask(tool_choice=choice)).json()["error"]
    assert (error["param"], error["code"]) == ("tool_choice", "unsupported_parameter")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
async def test_other_formats_get_their_own_calls(client, engine, path):
    engine.words = [CALL]
    function = TOOL["function"]
    body = {
        "/v1/messages": {
            "max_tokens": 90,
            "messages": [{"role": "user", "content": "x"}],
            "tools": [{"name": "read", "input_schema": function["parameters"]}],
        },
        "/v1/responses": {"input": "x", "tools": [{"type": "function", **function}]},
    }[path]
    answer = (await client.post(path, json={"model": "org/words"} | body)).json()
    if path == "/v1/messages":
        assert answer["stop_reason"] == "tool_use"
        assert answer["content"][0]["input"] == {"path": "a.txt"}
    else:
        assert json.loads(answer["output"][0]["arguments"]) == {"path": "a.txt"}


def test_the_official_clients_helper_reads_a_streamed_call(base_url, engine):
    engine.words = list(CALL)
    with (
        openai.OpenAI(base_url=base_url, api_key="unused") as client,
        client.chat.completions.stream(
            model="org/words", messages=[{"role": "user", "content": "x"}], tools=[TOOL]
        ) as stream,
    ):
        (choice,) = stream.get_final_completion().choices
    assert choice.message.tool_calls[0].function.arguments == '{"path": "a.txt"}'


def parse(text: str, size: int):
    parser, builder = ToolCallParser(), AnswerBuilder()
    builder.add(AnswerStart("x", "m", 1))
    deltas = []
    for start in range(0, len(text), size):
        for event in parser.feed(text[start : start + size]):
            deltas.append(event)
            builder.add(event)
    for event in parser.finish():
        builder.add(event)
    builder.add(AnswerEnd("stop", Usage()))
    return builder.answer(), deltas


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "plain", "names"),
    [
        ("nothing", "nothing", []),
        (f"a {CALL}", "a ", ["read"]),
        (f"{CALL}\n{CALL}\n", "", ["read", "read"]),
        ("<tool_call>no json</tool_call>", "<tool_call>no json</tool_call>", []),
        ("<tool_call>{}</tool_call>", "<tool_call>{}</tool_call>", []),
        ('cut <tool_call>{"na', 'cut <tool_call>{"na', []),
        ("a < b <tool", "a < b <tool", []),
    ],
)
def test_calls_are_told_from_text_however_it_comes(text, plain, names, size):
    answer, _ = parse(text, size)
    assert answer.text == plain
    assert [call.name for call in answer.tool_calls] == names


def test_text_that_begins_no_call_is_not_held_back():
    _, deltas = parse("one two", 1)
    assert [d.text for d in deltas if isinstance(d, TextDelta)] == list("one two")
