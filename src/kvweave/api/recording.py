"""Leaves one record of every request to a model, however it ends."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvweave.accounts import UsageSink
from kvweave.api.errors import ClientDisconnected, from_exception
from kvweave.api.exchange import CLIENT_DISCONNECTED, FORMATS, Exchange


class Recording:
    """Gives such a request its `Exchange`, in `scope["state"]["exchange"]`, and records it.

    Stands within authentication, which settles with the caller what was recorded.
    """

    def __init__(self, app: ASGIApp, sink: UsageSink) -> None:
        self._app = app
        self._sink = sink

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in FORMATS:
            await self._app(scope, receive, send)
            return
        state = scope["state"]
        exchange = state["exchange"] = Exchange(FORMATS[scope["path"]], state["caller"])
        status = CLIENT_DISCONNECTED  # unless an answer begins

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_noting_status)
        except ClientDisconnected:
            exchange.failed(CLIENT_DISCONNECTED, "client_disconnected")
            raise
        except (Exception, asyncio.CancelledError) as error:
            told = from_exception(error)
            exchange.failed(*((told.status, told.code) if told else (500, "internal_error")))
            raise
        finally:
            self._sink.record(exchange.record(status))
