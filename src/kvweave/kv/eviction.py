"""Eviction policies: the order in which a full tier gives up its chunks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol


class EvictionPolicy(Protocol):
    """Ranks the keys of one tier. Knows nothing of bytes or pins; not thread-safe by itself.

    The tier calls `add` when a key enters, `touch` on each hit, `remove` when it leaves, and takes
    keys from `victims` until it has room, skipping those in use.
    """

    def add(self, key: str, nbytes: int, cost_seconds: float) -> None: ...
    def touch(self, key: str) -> None: ...
    def remove(self, key: str) -> None: ...
    def victims(self) -> Iterator[str]:
        """Keys in the order in which they should go. The policy must not change meanwhile."""


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


POLICIES: dict[str, type[EvictionPolicy]] = {"lru": LRU}


def make_policy(name: str) -> EvictionPolicy:
    """The policy called `name`.

    Raises:
        ValueError: unknown name.
    """
    try:
        return POLICIES[name]()
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise ValueError(f"unknown eviction policy {name!r}; known: {known}") from None
