"""Answers that are passed on as they are, and what is read in them on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pydantic_core

from kvweave.formats import FormatName, ServerEvent, Usage, usage_from

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
# Something of the answer itself, in any format: a key that holds its pieces, and a character.
_CONTENT = re.compile(
    rb'"(?:content|reasoning_content|reasoning|arguments|text|delta|thinking|partial_json)":\s*"[^"]'
)


def missing_key(endpoint: str, body: Mapping[str, Any]) -> str | None:
    """The key that makes a body an answer, if it is not there."""
    key = _REQUIRED[endpoint]
    found = body.get(key)
    empty = key == "choices" and not found
    return key if found is None or empty else None


class PassedStream:
    """Watches a stream that is passed on: its usage, its first token, its end."""

    def __init__(self, format: FormatName, *, drop_usage: bool) -> None:
        self._format = format
        self._last = _LAST[format]
        self._drop_usage = drop_usage
        self._usage: dict[str, Any] = {}
        self.started = False  # whether something of the answer was there
        self.ended = False

    def see(self, event: ServerEvent) -> bytes:
        """Notes what `event` says; returns what the client gets of it."""
        data = event.data
        if not self.started and _CONTENT.search(data):
            self.started = True
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

    def usage(self) -> Usage:
        """The usage, as far as it was told."""
        return usage_from(self._format, self._usage)

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
