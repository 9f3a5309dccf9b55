"""What the readers of backends' answers have in common."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic_core
from pydantic import BaseModel, BeforeValidator, ConfigDict

from kvweave.formats.base import BackendErrorEvent
from kvweave.formats.errors import FormatError
from kvweave.formats.sse import ServerEvent

_MOST_TOKENS = 10**12


def _plausible(count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int | float):
        return 0
    return int(count) if 0 <= count <= _MOST_TOKENS else 0


Count = Annotated[int, BeforeValidator(_plausible)]
"""A number of tokens. What cannot be one, such as null or 10**30, is taken for not counted: the
answer is no worse for it, and budgets and the usage log can add it up."""


class Lenient(BaseModel):
    """Part of an answer: servers send more than is known here."""

    model_config = ConfigDict(extra="ignore")


def event_json(event: ServerEvent) -> dict[str, Any]:
    """The payload of `event`.

    Raises:
        FormatError: it is not a JSON object.
    """
    try:
        body = pydantic_core.from_json(event.data)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise FormatError("the stream holds an event that is not a JSON object")
    return body


def raise_if_error(body: dict[str, Any]) -> None:
    """Raise `BackendErrorEvent` if a body is an error, whatever its HTTP status was."""
    found = error_in(body)
    if found is not None:
        raise BackendErrorEvent(*found)


def error_in(body: dict[str, Any]) -> tuple[str, str | None] | None:
    """Message and code of an error that a body carries; None if it carries none.

    Covers OpenAI's and Anthropic's objects, plain strings (Ollama), FastAPI's `detail` and the
    `{"object": "error"}` of older vLLM servers.
    """
    error: Any = body.get("error")
    if body.get("object") == "error" or (not error and body.keys() == {"detail"}):
        error = body
    if not error:
        return None
    if not isinstance(error, dict):
        return str(error), None
    message = error.get("message") or error.get("detail") or "an error without a message"
    code = error.get("code") or error.get("type")
    return (
        message if isinstance(message, str) else str(message),
        str(code) if code is not None else None,
    )
