"""Admission: a request starts only when its pages are certain, so none has to be put back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kvweave.engine.errors import EngineOverloaded


class Admission:
    """First come, first served, over a fixed number of tokens. Used from one event loop.

    Args:
        capacity: tokens that all admitted requests may hold together.
        max_waiting: requests that may wait; a further one is turned away.
    """

    def __init__(self, capacity: int, max_waiting: int) -> None:
        self._free = capacity
        self._max_waiting = max_waiting
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.active = 0

    @asynccontextmanager
    async def admit(self, tokens: int) -> AsyncIterator[None]:
        """Hold `tokens` of the capacity; waits its turn.

        Raises:
            EngineOverloaded: too many requests wait already.
        """
        await self._acquire(tokens)
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
            self._free += tokens
            self._wake()

    async def _acquire(self, tokens: int) -> None:
        if not self._waiting and tokens <= self._free:
            self._free -= tokens
            return
        if len(self._waiting) >= self._max_waiting:
            raise EngineOverloaded(retry_after_s=1.0 + 0.5 * len(self._waiting))
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (tokens, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free += tokens  # admitted in the same moment
            elif entry in self._waiting:
                self._waiting.remove(entry)
            self._wake()
            raise

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            tokens, turn = self._waiting.popleft()
            if not turn.cancelled():  # its request is gone, but has not had a turn to say so
                self._free -= tokens
                turn.set_result(None)
