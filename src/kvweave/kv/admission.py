"""Admission: whether a chunk that asks to come in is worth more than what would have to go.

Einziger, Friedman, Manes: "TinyLFU: A Highly Efficient Cache Admission Policy", ACM Transactions on
Storage 13(4), 2017.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import xxhash


class FrequencySketch:
    """About how often each key was recorded lately, in `4 * width` bytes for any number of keys.

    A count-min sketch with conservative update (only the smallest counters of a key grow). An
    estimate is never too low, except that counters stop at `MAX_COUNT`. Once `sample_size` records
    are counted, all counters are halved, and so is that count: old fame fades. The same keys in the
    same order give the same estimates in every process.

    Args:
        width: counters in each of the four rows; rounded up to a power of two.
        sample_size: records counted until everything is halved.
    """

    ROWS = 4
    MAX_COUNT = 15

    def __init__(self, width: int, sample_size: int) -> None:
        self._width = 1 << max(width - 1, 0).bit_length()
        self._sample_size = sample_size
        self._recorded = 0
        self._counts = bytearray(self.ROWS * self._width)

    @property
    def nbytes(self) -> int:
        return len(self._counts)

    def record(self, key: str) -> None:
        """Count one use of `key`."""
        counts = self._counts
        cells = self._cells(key)
        lowest = min(counts[cell] for cell in cells)
        if lowest < self.MAX_COUNT:
            for cell in cells:
                if counts[cell] == lowest:
                    counts[cell] = lowest + 1
        self._recorded += 1
        if self._recorded >= self._sample_size:
            self._counts = counts.translate(_HALVED)
            self._recorded //= 2

    def estimate(self, key: str) -> int:
        """About how often `key` was recorded, from 0 to `MAX_COUNT`."""
        return min(self._counts[cell] for cell in self._cells(key))

    def _cells(self, key: str) -> list[int]:
        """One cell a row: 32 bits of the key's digest each."""
        digest = xxhash.xxh3_128_intdigest(key.encode())
        return [row * self._width + (digest >> 32 * row) % self._width for row in range(self.ROWS)]


_HALVED = bytes(count >> 1 for count in range(256))


class Admission:
    """Keeps what is hot from being pushed out by what is asked for once. Thread-safe.

    One sweep over a corpus brings thousands of chunks that are never asked for again. Each is
    admitted only if it was asked for at least as often lately as the chunks it would replace, on
    average; so among chunks that nobody asks for twice the newer still replaces the older.

    Args:
        keys: how many chunks the tier holds when it is full, about; each costs 32 to 64 bytes.
    """

    #: Counters in a row per key held. With fewer, the many keys of a sweep that share counters look
    #: as if they had been asked for twice.
    _COUNTERS_PER_KEY = 8
    #: Records per key held until all counts are halved, as in the paper.
    _SAMPLES_PER_KEY = 10
    _MIN_KEYS, _MAX_KEYS = 1 << 6, 1 << 20

    def __init__(self, keys: int) -> None:
        keys = min(max(keys, self._MIN_KEYS), self._MAX_KEYS)
        self._sketch = FrequencySketch(self._COUNTERS_PER_KEY * keys, self._SAMPLES_PER_KEY * keys)
        self._lock = threading.Lock()

    def record(self, key: str) -> None:
        """`key` was looked up, whether it was found or not."""
        with self._lock:
            self._sketch.record(key)

    def admit(self, candidate_key: str, victim_keys: Iterable[str]) -> bool:
        """Whether the candidate may replace these victims; always, if there are none."""
        with self._lock:
            victims = [self._sketch.estimate(key) for key in victim_keys]
            return self._sketch.estimate(candidate_key) * len(victims) >= sum(victims)
