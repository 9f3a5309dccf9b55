"""How many tokens a request needs whose model's tokenizer is not known here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

BYTES_PER_TOKEN = 4
"""Of JSON, in prompts and in answers."""

PICTURE_TOKENS = 1500
"""A picture, however many bytes it has: about what providers count for one of a megapixel."""

FILE_BYTES_PER_TOKEN = 64
"""Of another file in base64, such as a PDF or a recording: no more than a guess."""

DEFAULT_ANSWER_TOKENS = 1024
"""The longest answer of a request that sets no limit."""

_MOST = 10**12  # of anything: more is a mistake, and would be too long to print

_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_PICTURES = frozenset({"image", "image_url", "input_image"})
_FILES = frozenset({"document", "file", "input_file", "input_audio"})
# Only parts of these types are looked into: files that are told in base64 are long.
_MARKS = (b"image", b"document", b"file", b"input_audio")


def prompt_tokens(raw: bytes, body: dict[str, Any]) -> int:
    """About how long the prompt of a request is.

    Args:
        raw: the body as it came.
        body: the same, parsed.
    """
    length, tokens = len(raw), 0
    if any(mark in raw for mark in _MARKS):
        for part in _parts(body):
            size = _base64_size(part)
            length -= size
            if part["type"] in _PICTURES:
                tokens += PICTURE_TOKENS
            else:
                tokens += size // FILE_BYTES_PER_TOKEN
    return max(1, length // BYTES_PER_TOKEN + tokens)


def answer_tokens(body: dict[str, Any]) -> int:
    """How long all answers together may become that a request asks for."""
    given = [limit for name in _LIMITS if (limit := _count(body.get(name))) is not None]
    return max(given, default=DEFAULT_ANSWER_TOKENS) * _answers(body)


def text_tokens(size: int) -> int:
    """About how many tokens a piece of an answer has, of so many characters or bytes."""
    return max(1, size // BYTES_PER_TOKEN)


def _answers(body: dict[str, Any]) -> int:
    """How many answers are asked for: `n` to each prompt, of which text completions take a list."""
    each = max(_count(body.get("n")) or 1, _count(body.get("best_of")) or 1)
    match body.get("prompt"):
        case [str() | list(), *_] as prompts:
            return each * len(prompts)
        case _:  # also a list of numbers, which are the tokens of one
            return each


def _count(value: object) -> int | None:
    """A number of tokens or answers; what is none is for the provider to refuse."""
    match value:
        case bool():
            return None
        case int():
            return min(max(0, value), _MOST)
        case float() if math.isfinite(value):
            return int(min(max(0.0, value), _MOST))
        case _:
            return None


def _parts(value: object) -> Iterator[dict[str, Any]]:
    """All parts that hold a picture or a file, however deep: answers of tools may hold some."""
    waiting: list[Any] = [value]
    while waiting:
        match waiting.pop():
            case {"type": str(kind), **rest} as part if kind in _PICTURES or kind in _FILES:
                yield part
                waiting += rest.values()
            case dict() as other:
                waiting += other.values()
            case list() as items:
                waiting += items


def _base64_size(part: dict[str, Any]) -> int:
    """Length of the file in a part; 0 if it is elsewhere, or text."""
    match part:
        case {"image_url": str(url)} | {"image_url": {"url": str(url)}}:
            return len(url) if url.startswith("data:") else 0
        case {"source": {"type": "base64", "data": str(data)}}:
            return len(data)
        case {"input_audio": {"data": str(data)}}:
            return len(data)
        case {"file": {"file_data": str(data)}} | {"file_data": str(data)}:
            return len(data)
        case _:
            return 0
