"""Selectors by the name that a request or the configuration gives."""

from __future__ import annotations

from collections.abc import Iterable

from kvweave.blend import SELECTORS, Selector


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


def selector_named(name: str) -> Selector:
    """The selector called `name`; see `UnknownSelector`."""
    try:
        return SELECTORS[name]
    except KeyError:
        raise UnknownSelector(name, SELECTORS) from None
