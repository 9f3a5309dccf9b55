"""Why reuse cannot do what is asked of it."""

from __future__ import annotations

from collections.abc import Iterable

from kvweave.errors import KvweaveError


class CacheTooSmall(KvweaveError):
    """The chunks of one prompt do not fit into the cache together."""


class UnknownSelector(Exception):
    """A request names a selector that does not exist.

    Attributes:
        name: the selector asked for.
        known: the selectors there are.
    """

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(sorted(known))
        super().__init__(f"there is no selector {name!r}; known: {', '.join(self.known)}")
