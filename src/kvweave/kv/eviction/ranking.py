"""Keys ordered by a number that may change: the queue under the policies that give scores."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator


class Ranking:
    """Keys by ascending rank; among equal ranks, the one that was ranked first comes first.

    A binary heap with lazy deletion. An outdated record stays in the heap until it comes to the top
    or until there are more of them than keys; then the heap is built anew.
    """

    _SLACK = 64

    def __init__(self) -> None:
        self._records: dict[str, tuple[float, int, str]] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._walked: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def __getitem__(self, key: str) -> float:
        return self._records[key][0]

    def __setitem__(self, key: str, rank: float) -> None:
        record = (rank, next(self._numbers), key)
        self._records[key] = record
        heapq.heappush(self._heap, record)
        if len(self._heap) + len(self._walked) > 2 * len(self._records) + self._SLACK:
            self._heap = list(self._records.values())
            heapq.heapify(self._heap)
            self._walked.clear()

    def __delitem__(self, key: str) -> None:
        del self._records[key]

    def lowest(self) -> float:
        """The lowest rank of all. There must be a key."""
        self._rewind()
        while not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0]

    def __iter__(self) -> Iterator[str]:
        """Keys in ascending order; what is not iterated over is not sorted."""
        self._rewind()
        while self._heap:
            record = heapq.heappop(self._heap)
            if self._is_current(record):
                self._walked.append(record)
                yield record[2]

    def _rewind(self) -> None:
        """Put back what an iteration took off the heap."""
        for record in self._walked:
            if self._is_current(record):
                heapq.heappush(self._heap, record)
        self._walked.clear()

    def _is_current(self, record: tuple[float, int, str]) -> bool:
        return self._records.get(record[2]) is record
