"""What every eviction policy can do. The tiers and the simulator are written against this alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class EvictionPolicy(Protocol):
    """Ranks the keys of one tier. Knows nothing of limits or pins; not thread-safe by itself.

    The tier calls `add` when a key enters, `touch` on each hit and `remove` when it leaves, for
    whatever reason. To make room it takes keys from `victims` until enough bytes would be free,
    skipping those in use, and then removes what it took. No call costs more than O(log n) over
    time, with n keys held; `victims` costs that for each key taken from it.
    """

    def add(self, key: str, nbytes: int, cost_seconds: float) -> None:
        """`key` enters. If it is held already, this is a use, and its size and cost are replaced.

        Args:
            nbytes: what it takes of the tier; at least 1.
            cost_seconds: what computing it again would take; 0 if that is not known.
        """

    def touch(self, key: str) -> None:
        """`key` was used. Does nothing for a key that is not held."""

    def remove(self, key: str) -> None:
        """`key` has left. Does nothing for a key that is not held."""

    def victims(self) -> Iterator[str]:
        """Every key held, once, in the order in which they should go; computed as it is taken.

        Taking keys changes nothing: until a `remove`, the next call begins with the same key. No
        other method may be called while the iterator is still in use.
        """
