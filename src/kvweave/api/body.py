"""Reading a request's JSON body."""

from __future__ import annotations

from typing import TypeVar

import pydantic_core
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from kvweave.api.errors import ApiError, ClientDisconnected, invalid_body

MAX_BODY_BYTES = 32 * 1024 * 1024

ModelT = TypeVar("ModelT", bound=BaseModel)


async def read_body(request: Request, model: type[ModelT]) -> ModelT:
    """The request's JSON body as `model`.

    Raises:
        ApiError: the body is too large, not JSON, or not what `model` wants.
        ClientDisconnected: the client hung up before sending all of it.
    """
    raw = await _read_bytes(request)
    try:
        value = pydantic_core.from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body must be a JSON object.", code="invalid_json")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid_body(error) from None


async def _read_bytes(request: Request) -> bytes:
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                # The server reads on and drops the rest, so that the client gets to see this.
                raise ApiError(
                    413,
                    f"The body is larger than {MAX_BODY_BYTES // 2**20} MB.",
                    code="request_too_large",
                )
    except ClientDisconnect:
        raise ClientDisconnected from None
    return bytes(body)
