"""Passages: the sentences that matter, and filler around them up to a length."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from kvweave.bench.knowledge.attributes import ATTRIBUTES, Attribute
from kvweave.bench.knowledge.names import Entity, EntityKind, NameSource
from kvweave.bench.knowledge.phrases import note, state

CountTokens = Callable[[str], int]
STATEMENTS_PER_ENTITY = 3
NOTES_PER_ENTRY = 2


class Zone(Enum):
    """What filler may stand in a gap between the fixed sentences of a passage."""

    SENTENCES = auto()
    IMPERSONAL = auto()  # sentences that name no person
    ENTRIES = auto()  # headings with their own notes
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Passage:
    """Fixed sentences in order; `zones[i]` stands before sentence i, the last one at the end."""

    fixed: tuple[str, ...]
    zones: tuple[Zone, ...]
    as_lines: bool = False

    @classmethod
    def around(cls, fixed: Sequence[str]) -> Passage:
        """A passage with ordinary sentences anywhere between the fixed ones."""
        return cls(tuple(fixed), (Zone.SENTENCES,) * (len(fixed) + 1))

    def write(self, filler: Filler, rng: random.Random, tokens: int, count: CountTokens) -> str:
        """The text, filled up to about `tokens` tokens as `count` counts them.

        A filler goes into any gap with equal probability, which leaves the fixed sentences
        anywhere in the passage with about equal probability.
        """
        gaps: list[list[str]] = [[] for _ in self.zones]
        text = self._join(gaps)
        length = count(text)
        while length < tokens:
            places = [
                (zone, at)
                for zone, kind in enumerate(self.zones)
                if kind is not Zone.CLOSED
                for at in range(len(gaps[zone]) + 1)
            ]
            zone, at = rng.choice(places)
            gaps[zone].insert(at, filler.make(self.zones[zone]))
            longer = self._join(gaps)
            new_length = count(longer)
            if new_length - tokens > tokens - length:
                break
            text, length = longer, new_length
        return text

    def _join(self, gaps: list[list[str]]) -> str:
        parts = list(gaps[0])
        for sentence, gap in zip(self.fixed, gaps[1:], strict=True):
            parts += [sentence, *gap]
        return ("\n" if self.as_lines else " ").join(parts)


@dataclass(slots=True)
class Filler:
    """Makes sentences about entities that no question is about."""

    rng: random.Random
    names: NameSource
    _open: dict[Zone, tuple[Entity, list[Attribute]]] = field(default_factory=dict)

    def make(self, zone: Zone) -> str:
        if zone is Zone.ENTRIES:
            return self._entry()
        entity, attributes = self._open.get(zone, (None, []))
        if entity is None or not attributes:
            entity, attributes = self._new_subject(zone)
            self._open[zone] = (entity, attributes)
        attribute = attributes.pop()
        return state(attribute, entity, attribute.make_value(self.rng, self.names), self.rng)

    def _new_subject(self, zone: Zone) -> tuple[Entity, list[Attribute]]:
        impersonal = zone is Zone.IMPERSONAL
        kinds: tuple[EntityKind, ...] = ("company", "town")
        if not impersonal:
            kinds = ("person", *kinds)
        entity = self.names.entity(self.rng.choice(kinds))
        attributes = [
            attribute
            for attribute in ATTRIBUTES[entity.kind]
            if not (impersonal and attribute.mentions_person)
        ]
        return entity, self.rng.sample(attributes, STATEMENTS_PER_ENTITY)

    def _entry(self) -> str:
        entity, attributes = self._new_subject(Zone.ENTRIES)
        notes = [
            note(attribute, attribute.make_value(self.rng, self.names))
            for attribute in attributes[:NOTES_PER_ENTRY]
        ]
        return "\n".join([f"## {entity.name}", *notes])
