"""Noticing that a client hung up while its answer is being generated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from starlette.types import Receive

from kvweave.api.errors import ClientDisconnected

T = TypeVar("T")


async def until_disconnect(
    items: AsyncGenerator[T, None], receive: Receive
) -> AsyncGenerator[T, None]:
    """Yield `items` for as long as the client is there, then close them.

    `receive` is the request's, whose body must have been read. The wait for the next item ends at
    once when the client hangs up, so that a long prefill is cancelled too.

    Raises:
        ClientDisconnected: the client hung up.
    """
    gone = asyncio.ensure_future(_client_gone(receive))
    try:
        async with aclosing(items):
            while True:
                step = asyncio.ensure_future(anext(items))
                try:
                    done, _ = await asyncio.wait({step, gone}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    await _end(step)
                if step not in done:
                    raise ClientDisconnected
                try:
                    item = step.result()
                except StopAsyncIteration:
                    return
                yield item
    finally:
        await _end(gone)


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


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(task: asyncio.Future[T]) -> None:
    """Cancel `task` if it still runs, and wait until it has ended, however it ends."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # seen, and of no interest any more
