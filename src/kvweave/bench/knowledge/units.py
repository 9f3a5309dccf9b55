"""Units: the facts of one story and the one or two chunks that hold them.

The kind of a unit says how its facts and the entity they belong to are spread over its chunks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from kvweave.bench.knowledge.attributes import ATTRIBUTES, Attribute
from kvweave.bench.knowledge.names import Entity, NameSource
from kvweave.bench.knowledge.passages import Passage, Zone
from kvweave.bench.knowledge.phrases import (
    INTRODUCTIONS,
    RELATIONS,
    ask,
    correct,
    note,
    state,
    state_by_pronoun,
)

Kind = Literal["single", "two_hop", "pronoun", "heading", "corrected"]
CHUNKS: dict[Kind, int] = {
    "single": 1,
    "two_hop": 2,
    "pronoun": 2,
    "heading": 2,
    "corrected": 2,
}
"""How many chunks a unit of each kind has."""
MAX_FACTS = min(len(attributes) for attributes in ATTRIBUTES.values())


@dataclass(frozen=True, slots=True)
class Fact:
    """A question that the unit's chunks answer; `superseded` is the value a correction replaced."""

    question: str
    answer: str
    superseded: str | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """Facts of one kind with the passages that are needed to answer them.

    With `together`, the second passage must directly follow the first wherever it appears; with
    `in_order`, it must come later when both appear.
    """

    kind: Kind
    entities: tuple[str, ...]
    passages: tuple[Passage, ...]
    facts: tuple[Fact, ...]
    together: bool = False
    in_order: bool = False


@dataclass(slots=True)
class UnitFactory:
    """Makes units of `facts` facts each, in an order fixed by `rng`."""

    rng: random.Random
    names: NameSource
    facts: int

    def make(self, kind: Kind) -> Unit:
        makers: dict[Kind, Callable[[], Unit]] = {
            "single": self._single,
            "two_hop": self._two_hop,
            "pronoun": self._pronoun,
            "heading": self._heading,
            "corrected": self._corrected,
        }
        unit = makers[kind]()
        # The fact that is asked first should not be the one that comes first in the text.
        return replace(unit, facts=tuple(self.rng.sample(unit.facts, len(unit.facts))))

    def _values(self, entity: Entity) -> list[tuple[Attribute, str]]:
        chosen = self.rng.sample(ATTRIBUTES[entity.kind], self.facts)
        return [(attribute, attribute.make_value(self.rng, self.names)) for attribute in chosen]

    def _any_entity(self) -> Entity:
        return self.names.entity(self.rng.choice(("person", "company", "town")))

    def _facts(self, values: list[tuple[Attribute, str]], subject: str) -> tuple[Fact, ...]:
        return tuple(Fact(ask(attribute, subject, self.rng), value) for attribute, value in values)

    def _single(self) -> Unit:
        entity = self._any_entity()
        values = self._values(entity)
        said = [state(attribute, entity, value, self.rng) for attribute, value in values]
        return Unit(
            "single", (entity.name,), (Passage.around(said),), self._facts(values, entity.name)
        )

    def _two_hop(self) -> Unit:
        person = self.names.person()
        relation = self.rng.choice(RELATIONS)
        target = self.names.entity(relation.target)
        first_hop = self.rng.choice(relation.statements).format(s=person.name, b=target.name)
        values = self._values(target)
        said = [state(attribute, target, value, self.rng) for attribute, value in values]
        return Unit(
            "two_hop",
            (person.name, target.name),
            (Passage.around([first_hop]), Passage.around(said)),
            self._facts(values, relation.phrase.format(s=person.name)),
        )

    def _pronoun(self) -> Unit:
        person = self.names.person()
        values = self._values(person)
        introduction = self.rng.choice(INTRODUCTIONS).format(s=person.name)
        said = tuple(
            state_by_pronoun(attribute, person, value, self.rng) for attribute, value in values
        )
        # Between the name and the pronouns nobody else may be named, or "she" would be them.
        return Unit(
            "pronoun",
            (person.name,),
            (
                Passage((introduction,), (Zone.SENTENCES, Zone.IMPERSONAL)),
                Passage(said, (*[Zone.IMPERSONAL] * len(said), Zone.SENTENCES)),
            ),
            self._facts(values, person.name),
            together=True,
        )

    def _heading(self) -> Unit:
        entity = self._any_entity()
        values = self._values(entity)
        notes = [note(attribute, value) for attribute, value in values]
        return Unit(
            "heading",
            (entity.name,),
            (
                Passage((f"## {entity.name}",), (Zone.ENTRIES, Zone.CLOSED), as_lines=True),
                Passage(
                    tuple(notes), (*[Zone.SENTENCES] * len(notes), Zone.ENTRIES), as_lines=True
                ),
            ),
            self._facts(values, entity.name),
            together=True,
        )

    def _corrected(self) -> Unit:
        entity = self._any_entity()
        said: list[str] = []
        corrections: list[str] = []
        facts: list[Fact] = []
        for attribute, old in self._values(entity):
            value = old
            while value == old:
                value = attribute.make_value(self.rng, self.names)
            said.append(state(attribute, entity, old, self.rng))
            corrections.append(correct(attribute, entity, old, value, self.rng))
            facts.append(Fact(ask(attribute, entity.name, self.rng), value, superseded=old))
        return Unit(
            "corrected",
            (entity.name,),
            (Passage.around(said), Passage.around(corrections)),
            tuple(facts),
            in_order=True,
        )
