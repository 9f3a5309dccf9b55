"""S3-FIFO: newcomers wait in a small queue of their own, and stay only if they are used there.

Yang, Zhang, Qiu, Yue, Rashmi: "FIFO Queues are All You Need for Cache Eviction", SOSP 2023.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field


class S3FIFO:
    """A `small` queue for newcomers, a `main` queue, and a `ghost` queue of keys that have left.

    A key enters `small`, or `main` if `ghost` remembers it. The oldest key of `small` goes while
    that queue has more than its share of the bytes, else the oldest of `main`. But a key of `small`
    that was used twice moves to `main` instead, and a key of `main` with a use left goes round once
    more for it.

    `victims` only notes such moves. They are made by `remove`, up to the key that is removed, so
    an eviction that never happens costs no key its uses, and one that happens is paid for once.
    """

    #: What `small` may have of the bytes held before its keys go first.
    SMALL_SHARE = 0.1
    #: What the keys that `ghost` remembers may have had, measured by the bytes held.
    GHOST_SHARE = 0.9
    #: Uses that take a newcomer to `main`.
    PROMOTING_USES = 2
    #: More uses are not counted.
    MAX_USES = 3

    def __init__(self) -> None:
        self._small = _Queue()
        self._main = _Queue()
        self._ghost = _Queue()
        self._moves = _Moves()

    def add(self, key: str, nbytes: int, cost_seconds: float) -> None:
        queue = self._queue_of(key)
        if queue is not None:
            queue.resize(key, nbytes)
            self.touch(key)
        elif key in self._ghost.entries:
            self._ghost.pop(key)
            self._main.append(key, _Entry(nbytes))
        else:
            self._small.append(key, _Entry(nbytes))

    def touch(self, key: str) -> None:
        queue = self._queue_of(key)
        if queue is not None:
            entry = queue.entries[key]
            entry.uses = min(entry.uses + 1, self.MAX_USES)

    def remove(self, key: str) -> None:
        if key in self._moves.offers:
            for moved in self._moves.due_before(key):
                self._move(moved)
        else:  # it may be one of those to be moved
            self._moves = _Moves()
        queue = self._queue_of(key)
        if queue is None:
            return
        remembered = self.GHOST_SHARE * self._nbytes
        entry = queue.pop(key)
        if queue is self._small:
            self._ghost.append(key, entry)
        while self._ghost.nbytes > remembered:
            self._ghost.pop(next(iter(self._ghost.entries)))

    def victims(self) -> Iterator[str]:
        moves = self._moves = _Moves()
        small = iter(self._small.entries.items())
        main = ((key, entry.uses) for key, entry in self._main.entries.items())
        moved: deque[tuple[str, int]] = deque()  # what would stand behind `main` by now
        in_small = len(self._small.entries)
        left = in_small + len(self._main.entries)
        small_bytes, small_share = self._small.nbytes, self.SMALL_SHARE * self._nbytes
        while left:
            if in_small and (small_bytes > small_share or in_small == left):
                key, entry = next(small)
                in_small -= 1
                small_bytes -= entry.nbytes
                stays, uses = entry.uses >= self.PROMOTING_USES, 0
            else:
                key, uses = next(main, None) or moved.popleft()
                stays, uses = uses > 0, uses - 1
            if stays:
                moved.append((key, uses))
                moves.keys.append(key)
            else:
                left -= 1
                moves.offers[key] = len(moves.keys)
                yield key

    @property
    def _nbytes(self) -> int:
        return self._small.nbytes + self._main.nbytes

    def _queue_of(self, key: str) -> _Queue | None:
        return next((queue for queue in (self._small, self._main) if key in queue.entries), None)

    def _move(self, key: str) -> None:
        """From `small` to `main`, or once round `main`."""
        if key in self._small.entries:
            entry = self._small.pop(key)
            entry.uses = 0
        else:
            entry = self._main.pop(key)
            entry.uses -= 1
        self._main.append(key, entry)


@dataclass(slots=True)
class _Entry:
    nbytes: int
    uses: int = 0


class _Queue:
    """Entries in the order they came, and the bytes of all."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, _Entry] = OrderedDict()
        self.nbytes = 0

    def append(self, key: str, entry: _Entry) -> None:
        self.entries[key] = entry
        self.nbytes += entry.nbytes

    def pop(self, key: str) -> _Entry:
        entry = self.entries.pop(key)
        self.nbytes -= entry.nbytes
        return entry

    def resize(self, key: str, nbytes: int) -> None:
        self.nbytes += nbytes - self.entries[key].nbytes
        self.entries[key].nbytes = nbytes


@dataclass(slots=True)
class _Moves:
    """What one call of `victims` found: keys to move, and the keys offered in between.

    offers: how many moves come before each key offered.
    """

    keys: list[str] = field(default_factory=list)
    offers: dict[str, int] = field(default_factory=dict)
    made: int = 0

    def due_before(self, key: str) -> list[str]:
        """The moves that come before this offer and were not handed out yet."""
        due = self.keys[self.made : self.offers[key]]
        self.made += len(due)
        return due
