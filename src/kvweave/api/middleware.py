"""What happens around every request, whatever its route."""

from __future__ import annotations

import asyncio
import logging
import uuid

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvweave.api.errors import (
    ApiError,
    ClientDisconnected,
    error_style,
    from_exception,
    internal_error,
)
from kvweave.api.paths import canonical_path

log = logging.getLogger(__name__)


class RequestContext:
    """Gives each request an id, sent as `x-request-id`, and answers what nobody caught.

    The id is in `scope["state"]["request_id"]`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{uuid.uuid4().hex}"
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnected:
            log.info("%s: the client hung up", request_id)
        except (Exception, asyncio.CancelledError) as error:
            if started:
                raise  # the server closes the connection, so the client sees the answer broke off
            api_error = from_exception(error)
            if api_error is None:
                log.exception("%s: %s %s failed", request_id, scope["method"], scope["path"])
                api_error = internal_error(request_id)
            response = api_error.response(error_style(scope), request_id)
            await response(scope, receive, send_with_id)


class CanonicalPath:
    """Makes `/v1/x`, `/x`, `/api/x` and `/api/v1/x` one path, `/x`.

    Clients are configured with all kinds of base URLs. Doubled and trailing slashes go as well. The
    path as it was asked for stays in `scope["state"]["asked_path"]`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["asked_path"] = scope["path"]
            scope = {**scope, "path": canonical_path(scope["path"])}
        await self._app(scope, receive, send)


class ConcurrencyLimit:
    """Turns requests away while too many are being answered. Reading ones always pass."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        if self._running >= self._limit:
            raise ApiError(
                429,
                f"{self._limit} requests are being answered, and no more are taken; try again in "
                "1 s.",
                code="too_many_requests",
                headers={"retry-after": "1"},
            )
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1
