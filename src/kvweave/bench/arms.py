"""The arms that are compared, and the order they take turns in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvweave.bench.errors import BenchError


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to answer a prompt.

    Attributes:
        mode: what the request asks the server for.
        summary: what it does, for the report.
        uses_chunks: whether it looks chunks up, and so can bring missing ones into the cache.
    """

    mode: str
    summary: str
    uses_chunks: bool


ARMS = {
    arm.mode: arm
    for arm in (
        Arm("full", "every token is computed", uses_chunks=False),
        Arm("prefix", "exact-prefix reuse only", uses_chunks=False),
        Arm("reuse", "cached chunks, nothing recomputed", uses_chunks=True),
        Arm("blend", "cached chunks, a selected share recomputed", uses_chunks=True),
    )
}


def parse_arms(text: str) -> tuple[str, ...]:
    """The arms of a comma-separated list, in its order.

    Raises:
        BenchError: one is unknown or named twice, or there is none.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in ARMS]
    if unknown or not names:
        what = f"there is no arm {unknown[0]!r}" if unknown else "no arm is named"
        raise BenchError(f"--arms {text}: {what}; choose from {', '.join(ARMS)}")
    if len(set(names)) < len(names):
        raise BenchError(f"--arms {text}: each arm can be named once only")
    return names


def turn(arms: Sequence[str], number: int) -> tuple[str, ...]:
    """The arms in the order of turn `number`: each is first, second, .. equally often."""
    start = number % len(arms)
    return (*arms[start:], *arms[:start])
