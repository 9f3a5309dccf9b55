"""Who is told what becomes of a request."""

from __future__ import annotations

from typing import Protocol

from kvweave.formats import AnswerEvent, Usage


class Observer(Protocol):
    """Takes note of what is learnt on the way."""

    def asked(self, provider: str) -> None:
        """A provider is asked."""

    def turned_away(self) -> None:
        """It has no answer; whatever it did is not to be paid for."""

    def told(self, event: AnswerEvent) -> None:
        """An event of the answer."""

    def first_token(self) -> None:
        """Something of the answer is there."""

    def used(self, usage: Usage) -> None:
        """What the request used, as far as is known."""
