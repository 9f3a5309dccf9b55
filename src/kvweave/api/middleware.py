"""What happens around every request, whatever its route."""

from __future__ import annotations

import asyncio
import logging
import uuid

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvweave.api.errors import ClientDisconnected, from_exception, internal_error

log = logging.getLogger(__name__)

_PREFIXES = ("api", "v1")


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
            await api_error.response()(scope, receive, send_with_id)


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


def canonical_path(path: str) -> str:
    """`path` without the prefixes that clients may or may not put before an endpoint."""
    steps = [step for step in path.split("/") if step]
    while steps and steps[0] in _PREFIXES:
        del steps[0]
    return "/" + "/".join(steps)
