"""Selectors by the name that a request or the configuration gives."""

from __future__ import annotations

from kvweave.blend import SELECTORS, Selector
from kvweave.reuse.errors import UnknownSelector


def selector_named(name: str) -> Selector:
    """The selector called `name`; see `UnknownSelector`."""
    try:
        return SELECTORS[name]
    except KeyError:
        raise UnknownSelector(name, SELECTORS) from None
