"""Stand-ins that travel through a chat template in place of texts."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class MangledMark(ValueError):
    """The template changed a mark, so what it stood for cannot be put back."""


class Marks(Generic[T]):
    """Hands out marks for values and finds them again in the rendered text.

    Every mark holds a number drawn at random that occurs in none of `texts`, so that no input can
    forge one. A template that escapes, re-cases or cuts its input leaves parts of a mark behind;
    these are recognised as such instead of reaching the model.

    Args:
        texts: all that the template is given.
        delimiters: the characters a mark begins and ends with, different for each kind of mark.
            Private-use ones: ordinary text does not have them, and no template trims them.
    """

    def __init__(self, texts: Iterable[str], delimiters: tuple[str, str]) -> None:
        self._open, self._close = delimiters
        texts = list(texts)
        while True:
            self._nonce = f"{secrets.randbelow(10**20):020}"
            if not any(self._nonce in text for text in texts):
                break
        # Delimiters that the input has by itself prove nothing.
        self._remains = [self._nonce] + [
            char for char in delimiters if not any(char in text for text in texts)
        ]
        self._pattern = re.compile(f"{self._open}{self._nonce}:([0-9]+){self._close}")
        self._values: list[T] = []

    def mark(self, value: T) -> str:
        """The mark that stands for `value`."""
        self._values.append(value)
        return f"{self._open}{self._nonce}:{len(self._values) - 1}{self._close}"

    def split(self, rendered: str) -> tuple[str, list[tuple[T, str]]]:
        """The text before the first mark, and each mark's value with the text after it.

        Raises:
            MangledMark: something is left of a mark, but not all of it.
        """
        head, *rest = self._pattern.split(rendered)
        literals = rest[1::2]
        if any(part in literal for literal in (head, *literals) for part in self._remains):
            raise MangledMark("a mark was changed")
        values = [self._values[int(index)] for index in rest[0::2]]
        return head, list(zip(values, literals, strict=True))
