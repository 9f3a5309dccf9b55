"""Least recently used: what was not asked for longest goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator


class LRU:
    """Least recently used first."""

    def __init__(self) -> None:
        self._order: OrderedDict[str, None] = OrderedDict()

    def add(self, key: str, nbytes: int, cost_seconds: float) -> None:
        self._order[key] = None
        self._order.move_to_end(key)

    def touch(self, key: str) -> None:
        if key in self._order:
            self._order.move_to_end(key)

    def remove(self, key: str) -> None:
        self._order.pop(key, None)

    def victims(self) -> Iterator[str]:
        return iter(self._order)
