"""A streamed response that ends its source when the client hangs up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from kvweave.api.completions import encode_event
from kvweave.api.errors import ClientDisconnected, from_exception, internal_error

log = logging.getLogger(__name__)


class EventStream(Response):
    """Sends server-sent events as they come, and closes `source`, which they are made from.

    Unlike Starlette's streaming response it leaves `receive` alone: the source watches that.
    Once the stream has started its status is 200, so an error after that is sent as an event in
    OpenAI's error format, and the stream ends without `[DONE]`.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        *,
        source: AsyncGenerator[Any, None],
        request_id: str,
    ) -> None:
        self._events = events
        self._source = source
        self._request_id = request_id
        self.status_code = 200
        self.background = None
        # The second header keeps nginx from holding events back.
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_body(body: bytes, *, more: bool) -> None:
            await _send(send, {"type": "http.response.body", "body": body, "more_body": more})

        start = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        # The events alone would not do: closing a generator that never ran closes nothing.
        async with aclosing(self._source), aclosing(self._events):
            await _send(send, start)
            try:
                async for event in self._events:
                    await send_body(event, more=True)
            except ClientDisconnected:
                raise
            except (Exception, asyncio.CancelledError) as error:
                await send_body(self._error_event(error), more=True)
            await send_body(b"", more=False)

    def _error_event(self, error: BaseException) -> bytes:
        api_error = from_exception(error)
        if api_error is None:
            log.error("%s failed while streaming", self._request_id, exc_info=error)
            api_error = internal_error(self._request_id)
        return encode_event(api_error.body())


async def _send(send: Send, message: Message) -> None:
    try:
        await send(message)
    except OSError:  # how a server tells that nobody listens any more
        raise ClientDisconnected from None
