"""Bodies of requests: read whole, understood, refused, and handed on to vLLM."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse
from starlette.types import Message, Receive

MAX_BODY_BYTES = 64 * 2**20


class BadRequest(Exception):
    """A body that cannot be used; the message names the field."""

    status = 400


class BodyTooLarge(BadRequest):
    """A body of more than `MAX_BODY_BYTES`."""

    status = 413


def refusal(error: BadRequest | str) -> JSONResponse:
    """The answer that says so, in OpenAI's form."""
    status = error.status if isinstance(error, BadRequest) else 400
    details = {
        "message": str(error),
        "type": "invalid_request_error",
        "param": None,
        "code": status,
    }
    return JSONResponse({"error": details}, status)


def parsed(model: type[Any], value: Any, name: str) -> Any:
    """`value` as a pydantic `model`. Raises BadRequest, with fields named below `name`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in (*([name] if name else []), *first["loc"]))
        raise BadRequest(f"{where}: {first['msg']}") from None


def json_object(raw: bytes) -> dict[str, Any] | None:
    """None for what is no JSON object."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


async def read(receive: Receive) -> bytes:
    """All of the body. Raises BodyTooLarge."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"the body is larger than {MAX_BODY_BYTES >> 20} MiB")
        if not message.get("more_body"):
            return bytes(body)


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives this body, and then what the connection really does."""
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
