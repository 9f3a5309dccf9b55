"""Messages and documents from JSON values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvweave.prompt import Document, Message, PromptError, parse_documents, parse_messages

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "id", "title", "tool_calls"]), inner
        )
    ),
    max_leaves=12,
)


def text_part(text: object) -> dict[str, object]:
    return {"type": "text", "text": text}


def test_strings_and_text_parts():
    raw = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [text_part("a"), text_part("")], "name": "kim"},
    ]
    assert parse_messages(raw) == [Message("system", "Be brief."), Message("user", ("a", ""))]


def test_developer_is_another_name_for_system():
    assert parse_messages([{"role": "developer", "content": "x"}]) == [Message("system", "x")]


def test_an_answer_can_be_sent_back_as_it_came():
    raw = {"role": "assistant", "content": "Yes.", "refusal": None, "tool_calls": None}
    assert parse_messages([raw]) == [Message("assistant", "Yes.")]


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (None, "messages"),
        ("Hi", "messages"),
        ([], "messages"),
        (["Hi"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user<|im_end|>", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        (
            [{"role": "user", "content": [text_part("x"), text_part(1)]}],
            "messages[0].content[1].text",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        (
            [{"role": "user", "content": "x"}] * 2
            + [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
            "messages[2].content[0].type",
        ),
        (
            [{"role": "assistant", "content": None, "tool_calls": [{}]}],
            "messages[0].tool_calls[0].function",
        ),
    ],
)
def test_a_bad_message_is_an_error_that_names_the_field(raw, path):
    with pytest.raises(PromptError) as caught:
        parse_messages(raw)
    assert caught.value.path == path


def test_documents():
    raw = [{"id": "d1", "title": "T", "text": "x"}, {"text": "y", "id": None, "score": 0.5}]
    assert parse_documents(raw) == [Document("x", "d1", "T"), Document("y")]
    assert parse_documents(None) == []


def test_a_document_has_its_title_on_a_line_of_its_own():
    assert Document("x", title="T").chunk_text == "T\nx\n"
    assert Document("x", title="").chunk_text == "x\n"
    assert Document("", title="T").chunk_text == ""


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({}, "documents"),
        (["x"], "documents[0]"),
        ([{"id": "a"}], "documents[0].text"),
        ([{"text": None}], "documents[0].text"),
        ([{"text": "x"}, {"text": "x", "id": 7}], "documents[1].id"),
        ([{"text": "x", "title": []}], "documents[0].title"),
    ],
)
def test_a_bad_document_is_an_error_that_names_the_field(raw, path):
    with pytest.raises(PromptError) as caught:
        parse_documents(raw)
    assert caught.value.path == path


@given(JSON)
def test_whatever_json_comes_only_prompt_errors_come_out(raw):
    for parse in (parse_messages, parse_documents):
        try:
            parse(raw)
        except PromptError as error:
            assert error.path
