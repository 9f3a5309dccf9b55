"""GreedyDual-Size-Frequency: keep what saves the most computing per byte.

Cherkasova: "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy",
HP Labs technical report HPL-98-69R1, 1998. The cost of a miss is the time to compute it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvweave.kv.eviction.ranking import Ranking


@dataclass(slots=True)
class _Entry:
    nbytes: int
    cost_seconds: float
    uses: int


class GreedyDualSizeFrequency:
    """Lowest `clock + uses * cost_seconds / nbytes` first.

    The clock rises to the priority of what goes, so whatever is not used is overtaken in the end.
    A key whose cost is not known counts with the mean cost per byte of those that are.
    """

    def __init__(self) -> None:
        self._clock = 0.0
        self._entries: dict[str, _Entry] = {}
        self._priorities = Ranking()
        self._known_seconds = 0.0
        self._known_bytes = 0

    def add(self, key: str, nbytes: int, cost_seconds: float) -> None:
        known = self._entries.get(key)
        uses = known.uses + 1 if known else 1
        if cost_seconds > 0:
            self._known_seconds += cost_seconds
            self._known_bytes += nbytes
        elif known:
            cost_seconds = known.cost_seconds
        self._entries[key] = _Entry(nbytes, cost_seconds, uses)
        self._prioritise(key)

    def touch(self, key: str) -> None:
        entry = self._entries.get(key)
        if entry is not None:
            entry.uses += 1
            self._prioritise(key)

    def remove(self, key: str) -> None:
        if self._entries.pop(key, None) is not None:
            # The lowest priority, not the key's own: a key may leave for other reasons too.
            self._clock = self._priorities.lowest()
            del self._priorities[key]

    def victims(self) -> Iterator[str]:
        return iter(self._priorities)

    def _prioritise(self, key: str) -> None:
        entry = self._entries[key]
        if entry.cost_seconds > 0:
            seconds_per_byte = entry.cost_seconds / entry.nbytes
        else:
            seconds_per_byte = self._known_seconds / max(self._known_bytes, 1)
        self._priorities[key] = self._clock + entry.uses * seconds_per_byte
