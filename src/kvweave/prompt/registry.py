"""Texts known to be chunks, found again inside longer strings."""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import Counter, OrderedDict
from dataclasses import dataclass

# Long enough that few positions of ordinary text share it with a registered text.
_HEAD_CHARS = 16


@dataclass(frozen=True, slots=True)
class ChunkMatch:
    """`text[start:end]` of the searched string is the text of the chunk `chunk_id`."""

    start: int
    end: int
    chunk_id: str


class ChunkRegistry:
    """A bounded set of chunk texts with their ids, for each tenant its own. Thread-safe.

    When all texts together reach `max_chars`, the tenant with the most of them loses those it
    found or added longest ago: nobody can push out another's.
    """

    def __init__(self, *, max_chars: int = 64_000_000) -> None:
        self._max_chars = max_chars
        self._chars = 0
        self._lock = threading.Lock()
        self._tenants: dict[str, _Texts] = {}

    def __len__(self) -> int:
        with self._lock:
            return sum(len(texts) for texts in self._tenants.values())

    def add(self, text: str, chunk_id: str, *, tenant: str = "") -> None:
        """Register `text`. Registering it again gives it the new id.

        Raises:
            ValueError: the text is empty, or larger than the whole registry may be.
        """
        if not text:
            raise ValueError("an empty text cannot be a chunk")
        if len(text) > self._max_chars:
            raise ValueError(
                f"a text of {len(text)} characters does not fit a registry of {self._max_chars}"
            )
        with self._lock:
            texts = self._tenants.setdefault(tenant, _Texts())
            before = texts.chars
            texts.add(text, chunk_id)
            self._chars += texts.chars - before
            while self._chars > self._max_chars:
                self._drop_one()

    def id_of(self, text: str, *, tenant: str = "") -> str | None:
        """The id under which exactly `text` is registered."""
        with self._lock:
            texts = self._tenants.get(tenant)
            return texts.id_of(text) if texts else None

    def find(self, string: str, *, tenant: str = "") -> list[ChunkMatch]:
        """The registered texts in `string`, left to right, the longest at each place."""
        with self._lock:
            texts = self._tenants.get(tenant)
            return texts.find(string) if texts else []

    def _drop_one(self) -> None:
        tenant, texts = max(self._tenants.items(), key=lambda item: item[1].chars)
        self._chars -= texts.drop_oldest()
        if not len(texts):
            del self._tenants[tenant]


class _Texts:
    """The texts of one tenant.

    They are indexed by their first characters: a search looks at each position of the searched
    string once, however many texts are registered, and compares whole texts only where those first
    characters agree.
    """

    def __init__(self) -> None:
        self.chars = 0
        self._ids: OrderedDict[str, str] = OrderedDict()  # text -> id, least recently used first
        self._by_head: dict[str, list[str]] = {}  # head -> the texts with this head, sorted
        self._head_lengths: Counter[int] = Counter()  # length of a head -> number of such heads
        self._longest = 0  # no text registered so far was longer

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, text: str, chunk_id: str) -> None:
        if text not in self._ids:
            self._index(text)
        self._ids[text] = chunk_id
        self._ids.move_to_end(text)

    def drop_oldest(self) -> int:
        """Forget the text used longest ago; returns its length."""
        oldest, _ = self._ids.popitem(last=False)
        self._unindex(oldest)
        return len(oldest)

    def id_of(self, text: str) -> str | None:
        return self._ids.get(text)

    def find(self, string: str) -> list[ChunkMatch]:
        matches: list[ChunkMatch] = []
        # Longest first: a text of at least _HEAD_CHARS beats every shorter one.
        head_lengths = sorted(self._head_lengths, reverse=True)
        start = 0
        while head_lengths and start < len(string):
            for length in head_lengths:
                texts = self._by_head.get(string[start : start + length])
                if not texts:
                    continue
                text = _longest_prefix(string[start : start + self._longest], texts)
                if text is not None:
                    matches.append(ChunkMatch(start, start + len(text), self._ids[text]))
                    self._ids.move_to_end(text)
                    start += len(text)
                    break
            else:
                start += 1
        return matches

    def _index(self, text: str) -> None:
        head = text[:_HEAD_CHARS]
        if head not in self._by_head:
            self._by_head[head] = []
            self._head_lengths[len(head)] += 1
        insort(self._by_head[head], text)
        self.chars += len(text)
        self._longest = max(self._longest, len(text))

    def _unindex(self, text: str) -> None:
        head = text[:_HEAD_CHARS]
        texts = self._by_head[head]
        del texts[bisect_right(texts, text) - 1]
        if not texts:
            del self._by_head[head]
            self._head_lengths[len(head)] -= 1
            if not self._head_lengths[len(head)]:
                del self._head_lengths[len(head)]
        self.chars -= len(text)


def _longest_prefix(string: str, texts: list[str]) -> str | None:
    """The longest of the sorted `texts` that `string` starts with.

    In sorted order every prefix of a string comes before it. So the last text that is not greater
    than the string is either a prefix itself, or what it has in common with the string bounds all
    shorter prefixes, and the search goes on from there.
    """
    while index := bisect_right(texts, string):
        text = texts[index - 1]
        if string.startswith(text):
            return text
        string = string[: _common_length(string, text)]
    return None


def _common_length(first: str, second: str) -> int:
    """How many characters the two strings have in common at their start."""
    differing = (index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(differing, min(len(first), len(second)))
