"""Answers that are passed on as they are, and what is read in them on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pydantic_core

from kvweave.formats import FormatName, ServerEvent, Usage, usage_from
from kvweave.providers.estimate import text_tokens

# What a whole answer cannot be without.
_REQUIRED: Mapping[str, str] = {
    "chat": "choices",
    "completions": "choices",
    "messages": "content",
    "responses": "output",
    "embeddings": "data",
    "count_tokens": "input_tokens",
}
_LAST = {
    "chat": re.compile(rb'\A\[DONE\]|"finish_reason":\s*"'),
    "completions": re.compile(rb'\A\[DONE\]|"finish_reason":\s*"'),
    "messages": re.compile(rb'"message_stop"'),
    "responses": re.compile(rb'"response\.(?:completed|incomplete|failed|cancelled)"'),
}
_USAGE = re.compile(rb'"usage":\s*\{')
# Something of the answer itself, in any format: a key that holds its pieces, and what it holds.
_CONTENT = re.compile(
    rb'"(?:content|reasoning_content|reasoning|arguments|text|delta|thinking|partial_json)":\s*'
    rb'"((?:[^"\\]++|\\.)++)"'
)


def missing_key(endpoint: str, body: Mapping[str, Any]) -> str | None:
    """The key that makes a body an answer, if it is not there."""
    key = _REQUIRED[endpoint]
    found = body.get(key)
    empty = key == "choices" and not found
    return key if found is None or empty else None


def usage_of(endpoint: str, body: Mapping[str, Any], raw: bytes) -> Usage:
    """The usage of a whole answer; the length of the answer is estimated if it does not say."""
    told = body.get("usage")
    usage = usage_from(endpoint, told) if isinstance(told, dict) else Usage()
    if usage.completion_tokens or endpoint in ("embeddings", "count_tokens"):
        return usage
    seen = sum(text_tokens(len(found[1])) for found in _CONTENT.finditer(raw))
    return replace(usage, completion_tokens=seen)


class PassedStream:
    """Watches a stream that is passed on: its usage, its first token, its end."""

    def __init__(self, format: FormatName, *, drop_usage: bool) -> None:
        self._format = format
        self._last = _LAST[format]
        self._drop_usage = drop_usage
        self._retold = format == "responses"
        self._usage: dict[str, Any] = {}
        self._seen_tokens = 0
        self.ended = False

    def see(self, event: ServerEvent) -> bytes:
        """Notes what `event` says; returns what the client gets of it."""
        data = event.data
        # At its end a response is told once more.
        if (found := _CONTENT.search(data)) and not (self._retold and b".delta" not in data):
            self._seen_tokens += text_tokens(len(found[1]))
        if not self.ended and self._last.search(data):
            self.ended = True
        if not _USAGE.search(data):
            return event.raw
        try:
            body = pydantic_core.from_json(data)
        except ValueError:
            return event.raw
        if isinstance(body, dict):
            self._note_usage(body)
            if self._drop_usage:
                return self._without_usage(body, event)
        return event.raw

    @property
    def started(self) -> bool:
        """Whether something of the answer was there."""
        return self._seen_tokens > 0

    def usage(self) -> Usage:
        """The usage, as far as it was told; until the end some of the answer's may be missing."""
        usage = usage_from(self._format, self._usage)
        if self.ended and usage.completion_tokens:
            return usage
        return replace(usage, completion_tokens=max(usage.completion_tokens, self._seen_tokens))

    def _note_usage(self, body: dict[str, Any]) -> None:
        for holder in (body, body.get("message"), body.get("response")):
            found = holder.get("usage") if isinstance(holder, dict) else None
            if isinstance(found, dict):
                self._usage |= {key: value for key, value in found.items() if value is not None}

    def _without_usage(self, body: dict[str, Any], event: ServerEvent) -> bytes:
        if not body.get("choices"):
            return b""
        del body["usage"]
        return b"data: " + pydantic_core.to_json(body) + b"\n\n"
