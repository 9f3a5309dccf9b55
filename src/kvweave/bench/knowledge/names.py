"""Made-up names: people, companies, towns and rivers, each handed out once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

EntityKind = Literal["person", "company", "town"]
Gender = Literal["she", "he", "it"]

_WOMEN = (
    "Ada Agnes Alma Anna Beatrice Bertha Clara Cora Daisy Dora Edith Ella Elsa Emma Flora Freda "
    "Greta Hanna Hazel Hilda Ida Inga Iris Jane Julia Karin Laura Lena Lily Lucy Mabel Maria Mary "
    "Maud Nora Olga Paula Rosa Ruth Sara Selma Sofia Thea Vera Viola Wilma"
).split()
_MEN = (
    "Adam Albert Anton Arthur Axel Bernard Bruno Carl Conrad David Edgar Edwin Emil Eric Felix "
    "Frank Fred George Gustav Harold Henry Hugo Ivan Jacob James John Jonas Julius Karl Leo Louis "
    "Lucas Martin Max Nils Oscar Otto Paul Peter Ralph Robert Rolf Simon Thomas Victor Walter"
).split()
_ONSETS = (
    "Ald Bar Ber Bran Cald Cor Dal Del Dor Eld Fal Fen Gal Gar Gren Hal Hav Hol Jar Kel Kor Lan "
    "Lor Mar Mel Mor Nor Ost Pel Quil Ral Ros Sal Sel Tal Tam Tor Ul Val Vel Wal Wen Yar Zel"
).split()
_MIDDLES = ("", "", "a", "e", "en", "er", "i", "in", "o", "on")
_SURNAME_ENDS = (
    "bach berg crest dahl field gard holt lund man mere quist rick son stead thorn".split()
)
_TOWN_ENDS = (
    "bridge burgh bury by combe ford ham haven hurst minster mouth port ton wick worth".split()
)
_RIVER_ENDS = "da dle ga lau ma na ra sk ster va ve".split()
_TRADES = "Brothers|Company|Foundry|Guild|House|Mills|Traders|Union|Wares|Works|Yard".split("|")


@dataclass(frozen=True, slots=True)
class Entity:
    """Someone or something that the knowledge base states facts about."""

    kind: EntityKind
    name: str
    gender: Gender = "it"

    @property
    def possessive(self) -> str:
        """The pronoun that owns: her, his or its."""
        return {"she": "her", "he": "his", "it": "its"}[self.gender]


@dataclass(slots=True)
class NameSource:
    """Makes up names in an order fixed by `rng`.

    People share first names, as people do, but every surname, company, town and river is given
    once only.
    """

    rng: random.Random
    _used: set[str] = field(default_factory=set)

    def person(self) -> Entity:
        gender: Gender = self.rng.choice(("she", "he"))
        first = self.rng.choice(_WOMEN if gender == "she" else _MEN)
        return Entity("person", f"{first} {self._word(_SURNAME_ENDS)}", gender)

    def company(self) -> Entity:
        return Entity("company", f"{self._word(_SURNAME_ENDS)} {self.rng.choice(_TRADES)}")

    def town(self) -> Entity:
        return Entity("town", self._word(_TOWN_ENDS))

    def river(self) -> str:
        return self._word(_RIVER_ENDS)

    def entity(self, kind: EntityKind) -> Entity:
        return {"person": self.person, "company": self.company, "town": self.town}[kind]()

    def _word(self, ends: Sequence[str]) -> str:
        """A new word; it grows by a syllable where the short ones have become rare."""
        middles = 1
        while True:
            middle = "".join(self.rng.choice(_MIDDLES) for _ in range(middles))
            word = self.rng.choice(_ONSETS) + middle + self.rng.choice(ends)
            if word not in self._used:
                self._used.add(word)
                return word
            middles += self.rng.random() < 0.1
