"""Noticing that a client hung up while its answer is being made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.types import Receive

from kvweave.api.errors import ClientDisconnected

T = TypeVar("T")


@asynccontextmanager
async def while_connected(receive: Receive) -> AsyncIterator[None]:
    """Cancels what runs inside as soon as the client hangs up, so that a long prefill ends too.

    `receive` is the request's, whose body must have been read.

    Raises:
        ClientDisconnected: the client hung up.
    """
    scope = asyncio.timeout(None)  # cancels in just the right way; the time is when the client goes

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.reschedule(asyncio.get_running_loop().time())

    try:
        async with scope:
            watcher = asyncio.ensure_future(watch())
            try:
                yield
            finally:
                watcher.cancel()
    except Exception:  # also what fails only because it is cancelled
        if scope.expired():
            raise ClientDisconnected from None
        raise


async def prime(items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same `items`, after the first has come.

    Raises:
        Whatever `items` raises instead of its first item.
    """
    try:
        first = await anext(items)
    except BaseException:
        await items.aclose()
        raise

    async def all_items() -> AsyncGenerator[T, None]:
        yield first
        async for item in items:
            yield item

    return all_items()
