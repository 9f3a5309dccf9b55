"""Answers in the format of OpenAI's chat completions."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from kvweave.engine import Delta

_DONE = b"data: [DONE]\n\n"


class ChatCompletion:
    """Puts the deltas of one answer into OpenAI's format, whole or streamed."""

    def __init__(self, model: str, prompt_tokens: int) -> None:
        self._model = model
        self._prompt_tokens = prompt_tokens
        self._id = f"chatcmpl-{uuid.uuid4().hex}"
        self._created = int(time.time())

    async def whole(self, deltas: AsyncIterator[Delta]) -> dict[str, Any]:
        """The `chat.completion` object."""
        text: list[str] = []
        last = None
        async for delta in deltas:
            text.append(delta.text)
            last = delta
        final = _final(last)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(text), "refusal": None},
            "logprobs": None,
            "finish_reason": final.finish_reason,
        }
        return self._object("chat.completion", [choice]) | {"usage": self._usage(final)}

    async def events(
        self, deltas: AsyncIterator[Delta], *, include_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        """The `chat.completion.chunk` objects as server-sent events, up to `[DONE]`.

        With `include_usage` the last object has the usage and no choices, and all others a
        `usage` of null.
        """
        no_usage = {"usage": None} if include_usage else {}

        def event(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
            choice = {
                "index": 0,
                "delta": delta,
                "logprobs": None,
                "finish_reason": finish_reason,
            }
            return encode_event(self._object("chat.completion.chunk", [choice]) | no_usage)

        yield event({"role": "assistant", "content": ""})
        last = None
        async for delta in deltas:
            last = delta
            if delta.text:
                yield event({"content": delta.text})
        final = _final(last)
        yield event({}, final.finish_reason)
        if include_usage:
            usage = {"usage": self._usage(final)}
            yield encode_event(self._object("chat.completion.chunk", []) | usage)
        yield _DONE

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }

    def _usage(self, final: Delta) -> dict[str, Any]:
        report = final.report
        usage: dict[str, Any] = {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": final.token_count,
            "total_tokens": self._prompt_tokens + final.token_count,
            "prompt_tokens_details": {"cached_tokens": report.cached_tokens if report else 0},
        }
        if report is not None:
            usage["kvweave"] = report.to_dict()
        return usage


def _final(last: Delta | None) -> Delta:
    if last is None or last.finish_reason is None:
        raise RuntimeError("the engine ended an answer without a finish reason")
    return last


def encode_event(value: dict[str, Any]) -> bytes:
    """One server-sent event.

    Plain ASCII: some clients also split lines at Unicode's line separators.
    """
    return b"data: " + json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n\n"
