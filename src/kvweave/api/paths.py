"""Paths as they are routed."""

from __future__ import annotations

_PREFIXES = ("api", "v1")


def canonical_path(path: str) -> str:
    """`path` without the prefixes that clients may or may not put before an endpoint."""
    steps = [step for step in path.split("/") if step]
    while steps and steps[0] in _PREFIXES:
        del steps[0]
    return "/" + "/".join(steps)
