"""Least frequently used, where old uses count less and less.

Lee, Choi, Kim, Noh, Min, Cho, Kim: "LRFU: A Spectrum of Policies that Subsumes the Least Recently
Used and Least Frequently Used Policies", IEEE Transactions on Computers 50(12), 2001.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kvweave.kv.eviction.ranking import Ranking


class LFU:
    """Lowest use count first; a use counts half as much after every half-life.

    Time is counted in uses per key held, so fame fades at the same pace in a tier of any size.
    All weights shrink together, so they are never updated: a key's rank is the logarithm of its
    weight as seen from the time of the first use, and only its own uses change it.
    """

    #: Uses per key held until a use counts half.
    HALF_LIFE = 8.0

    def __init__(self) -> None:
        self._ranking = Ranking()
        self._now = 0.0  # in half-lives

    def add(self, key: str, nbytes: int, cost_seconds: float) -> None:
        self._use(key)

    def touch(self, key: str) -> None:
        if key in self._ranking:
            self._use(key)

    def remove(self, key: str) -> None:
        if key in self._ranking:
            del self._ranking[key]

    def victims(self) -> Iterator[str]:
        return iter(self._ranking)

    def _use(self, key: str) -> None:
        rank = self._now
        if key in self._ranking:
            before = self._ranking[key]  # log2(2**before + 2**now), without overflow:
            rank = max(before, rank) + math.log2(1.0 + 2.0 ** -abs(before - rank))
        self._ranking[key] = rank
        self._now += 1.0 / (self.HALF_LIFE * len(self._ranking))
