"""Reading a request's JSON body."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import pydantic_core
from pydantic import BaseModel
from starlette.requests import ClientDisconnect, Request

from kvweave.api.errors import ApiError, ClientDisconnected
from kvweave.config import ServerConfig
from kvweave.formats import validated

ModelT = TypeVar("ModelT", bound=BaseModel)

SLOWEST_BYTES_PER_S = 10_000
"""How fast a body has to come on average, once `client_timeout_sec` have passed."""


async def read_body(request: Request, model: type[ModelT], limits: ServerConfig) -> ModelT:
    """The request's JSON body as `model`.

    Raises:
        ApiError: the body is too large, not JSON, or took too long.
        FormatError: it is not what `model` wants.
        ClientDisconnected: the client hung up before sending all of it.
    """
    return validated(model, parse_object(await read_bytes(request, limits)))


def parse_object(raw: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ApiError: it is none.
    """
    try:
        value = pydantic_core.from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body must be a JSON object.", code="invalid_json")
    return value


async def read_bytes(request: Request, limits: ServerConfig) -> bytes:
    """The whole body.

    Raises:
        ApiError: it is too large, or the client stopped sending.
        ClientDisconnected: the client hung up before sending all of it.
    """
    largest = int(limits.max_body_mb * 1e6)
    loop = asyncio.get_running_loop()
    started = loop.time()
    too_large = ApiError(
        413, f"The body is larger than {limits.max_body_mb:g} MB.", code="request_too_large"
    )
    body = bytearray()
    pieces = request.stream()
    try:
        while True:
            # A client that sends a byte now and then is not waited for either.
            latest = started + limits.client_timeout_sec + len(body) / SLOWEST_BYTES_PER_S
            async with asyncio.timeout(min(limits.client_timeout_sec, latest - loop.time())):
                piece = await anext(pieces)
            body += piece
            if len(body) > largest:
                # The server reads on and drops the rest, so that the client gets to see this.
                raise too_large
    except StopAsyncIteration:
        return bytes(body)
    except TimeoutError:
        raise ApiError(
            408,
            f"The body came too slowly: {len(body):,} bytes in {loop.time() - started:.0f} s.",
            code="request_timeout",
            headers={"connection": "close"},
        ) from None
    except ClientDisconnect:
        raise ClientDisconnected from None
