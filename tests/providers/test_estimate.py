"""What a request may need, where no tokenizer is known."""

from __future__ import annotations

import json

import pytest

from kvweave.providers import answer_tokens, prompt_tokens
from kvweave.providers.estimate import (
    DEFAULT_ANSWER_TOKENS,
    FILE_BYTES_PER_TOKEN,
    PICTURE_TOKENS,
    text_tokens,
)

FILE = "QUJD" * 100_000
LINK = "https://example.org/mill.png"
PICTURES = {
    "chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{FILE}"}},
    "responses": {"type": "input_image", "image_url": f"data:image/png;base64,{FILE}"},
    "messages": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": FILE},
    },
    "chat, a link": {"type": "image_url", "image_url": {"url": LINK}},
    "messages, a link": {"type": "image", "source": {"type": "url", "url": LINK}},
}
FILES = {
    "chat": {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:x;base64,{FILE}"}},
    "chat, a recording": {"type": "input_audio", "input_audio": {"data": FILE, "format": "wav"}},
    "responses": {"type": "input_file", "file_data": f"data:application/pdf;base64,{FILE}"},
    "messages": {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": FILE},
    },
}


def estimate(body: dict[str, object]) -> int:
    return prompt_tokens(json.dumps(body).encode(), body)


def user(*parts: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}


def test_a_text_counts_by_its_length():
    assert prompt_tokens(b"x" * 4000, {}) == 1000
    assert prompt_tokens(b"{}", {}) == 1


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_a_picture_counts_as_one_and_not_by_its_bytes(picture):
    assert 2 * PICTURE_TOKENS < estimate(user(picture, picture)) < 2 * PICTURE_TOKENS + 150


@pytest.mark.parametrize("picture", PICTURES.values(), ids=PICTURES)
def test_a_picture_in_the_result_of_a_tool_counts_too(picture):
    result = {"type": "tool_result", "tool_use_id": "t", "content": [picture]}
    assert PICTURE_TOKENS < estimate(user(result)) < PICTURE_TOKENS + 150


@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_another_file_counts_less_than_text_of_its_length(file):
    expected = len(FILE) // FILE_BYTES_PER_TOKEN
    assert expected < estimate(user(file)) < expected + 150


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": FILE},
        {"type": "text", "text": f"data:image/png;base64,{FILE}"},
        {"type": "document", "source": {"type": "text", "data": FILE}},
        {"type": "document", "text": FILE},
    ],
)
def test_a_text_that_looks_like_a_file_counts_by_its_length(part):
    assert estimate(user(part)) > len(FILE) // 4


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({}, DEFAULT_ANSWER_TOKENS),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": 7.9}, 7),
        ({"max_output_tokens": 7}, 7),
        ({"max_tokens": None, "max_completion_tokens": 7, "n": 3}, 21),
        ({"max_tokens": 7, "prompt": ["a", "b"], "n": 2, "best_of": 4}, 56),
        ({"max_tokens": 7, "prompt": [1, 2, 3]}, 7),
        ({"max_tokens": 7, "prompt": [[1, 2], [3]]}, 14),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": "7"}, DEFAULT_ANSWER_TOKENS),
        ({"max_tokens": float("inf")}, DEFAULT_ANSWER_TOKENS),
        ({"max_tokens": -7, "n": -1}, 0),
        ({"max_tokens": 10**4000, "n": 10**4000}, 10**24),
        ({"max_tokens": True, "n": True}, DEFAULT_ANSWER_TOKENS),
    ],
)
def test_the_longest_answer_is_what_the_client_allows_times_how_many_it_wants(body, answer):
    assert answer_tokens(body) == answer


def test_a_piece_of_an_answer_is_a_token_at_least():
    assert [text_tokens(size) for size in (1, 4, 9, 400)] == [1, 1, 2, 100]
