"""The three chat formats say the same thing."""

from __future__ import annotations

import pytest

from kvweave.integrations.vllm import formats
from kvweave.prompt import Message, PromptError

SAID = [Message("system", "Be short."), Message("user", ("a passage", "a question"))]
TEXTS = ["a passage", "a question"]


def test_openai_anthropic_and_responses_give_the_same_messages():
    text = [{"type": "text", "text": t} for t in TEXTS]
    chat = {
        "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": text}]
    }
    anthropic = {"system": "Be short.", "messages": [{"role": "user", "content": text}]}
    responses = {
        "instructions": "Be short.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": t} for t in TEXTS]},
        ],
    }
    assert formats.chat_messages(chat) == SAID
    assert formats.anthropic_messages(anthropic) == SAID
    assert formats.response_messages(responses) == SAID


def test_a_string_is_a_users_message_in_the_responses_format():
    assert formats.response_messages({"input": "Hello"}) == [Message("user", "Hello")]


@pytest.mark.parametrize(
    "item", [{"type": "function_call_output", "output": "x"}, {"role": "user", "content": [{}]}]
)
def test_what_is_not_text_is_left_to_vllm(item):
    with pytest.raises(PromptError):
        formats.response_messages({"input": [item]})


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{"type": "function"}]},
        {"chat_template": "{{ messages }}"},
        {"continue_final_message": True},
        {"add_generation_prompt": False},
        {"previous_response_id": "resp_1"},
    ],
)
def test_what_changes_the_template_is_left_to_vllm(body):
    assert formats.is_plain({})
    assert not formats.is_plain(body)


def test_a_ticket_takes_the_place_of_everything_that_was_said():
    chat, anthropic = {"messages": [1, 2]}, {"system": "s", "messages": [1]}
    responses = {"instructions": "s", "input": [1]}
    formats.chat_ticket(chat, "t")
    formats.anthropic_ticket(anthropic, "t")
    formats.response_ticket(responses, "t")
    assert chat == anthropic == {"messages": [{"role": "user", "content": "t"}]}
    assert responses == {"input": "t"}
