"""A streamed response that ends its source when the client hangs up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from kvweave.api.disconnect import while_connected
from kvweave.api.errors import ClientDisconnected, from_exception, internal_error
from kvweave.api.exchange import Exchange

log = logging.getLogger(__name__)

ErrorEvent = Callable[[int, str, str | None], bytes]
"""Status, message and code of an error to the event that tells it."""


class Closable(Protocol):
    """What a stream is made from."""

    def aclose(self) -> Awaitable[Any]:
        """End it."""


class ClosableEvents(Closable, Protocol):
    """The events of a stream."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class EventStream(Response):
    """Sends server-sent events as they come, and closes `source`, which they are made from.

    Once the stream has started its status is 200, so an error after that is sent as an event in
    the API's own format, and the stream ends there. A client that takes nothing for `timeout_s` is
    taken for gone.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: ClosableEvents,
        *,
        source: Closable,
        error_event: ErrorEvent,
        exchange: Exchange,
        request_id: str,
        timeout_s: float,
    ) -> None:
        self._events = events
        self._source = source
        self._error_event = error_event
        self._exchange = exchange
        self._request_id = request_id
        self._timeout_s = timeout_s
        self.status_code = 200
        self.background = None
        # The second header keeps nginx from holding events back.
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_body(body: bytes, *, more: bool) -> None:
            message = {"type": "http.response.body", "body": body, "more_body": more}
            await self._send(send, message)

        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        # The events alone would not do: closing a generator that never ran closes nothing.
        async with aclosing(self._source), aclosing(self._events):
            await self._send(send, start)
            try:
                async with while_connected(receive):
                    async for event in self._events:
                        await send_body(event, more=True)
            except ClientDisconnected:
                raise
            except (Exception, asyncio.CancelledError) as error:
                await send_body(self._told(error), more=True)
            await send_body(b"", more=False)

    def _told(self, error: BaseException) -> bytes:
        api_error = from_exception(error)
        if api_error is None:
            log.error("%s failed while streaming", self._request_id, exc_info=error)
            api_error = internal_error(self._request_id)
        self._exchange.failed(api_error.status, api_error.code)
        return self._error_event(api_error.status, api_error.message, api_error.code)

    async def _send(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await send(message)
        except (OSError, TimeoutError):  # how a server tells that nobody listens any more
            raise ClientDisconnected from None
