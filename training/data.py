"""Made-up documents with questions: what the reader is trained on and measured with.

A document is the chunks of one prompt and several questions on them. The units it is made of differ
in how their facts lie in the chunks:

    plain       stated by name in one chunk
    pronoun     the name at the end of one chunk, "she" or "he" in the next
    heading     a heading at the end of one chunk, notes without a name in the next
    corrected   stated in one chunk, some of it corrected in a later one

A question names the entity it is about, or (two hops) another one that leads to it: "the teacher of
Mira Kolband". Some questions have no answer in the chunks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from training.names import Entity, NameSource
from training.passages import CountTokens, Passage, Writer, Zone
from training.wording import Attribute, Forms, Language, Relation, Split, write

Presentation = Literal["plain", "pronoun", "heading", "corrected"]
Kind = Literal["single", "two_hop", "pronoun", "heading", "corrected", "chain", "unknown"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""`chain`: a two-hop question whose second fact is not stated plainly."""

MAX_FACTS = 4
TOKENS_PER_FACT = 34
VIA_SHARE = {"plain": 0.5, "pronoun": 0.2, "heading": 0.2, "corrected": 0.2}
UNKNOWN_SHARE = 0.6
"""Of the documents, those with a question that they do not answer."""
TITLED_SHARE = 0.25
BENCHMARK_SYSTEM_SHARE = 0.7
BENCHMARK_QUESTION_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Ask:
    """A question, worded as it stands in the prompt, with its answer."""

    text: str
    answer: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Document:
    """The system prompt and the chunks of one prompt, with questions on them.

    Attributes:
        system: None stands for the benchmark's system prompt.
        chunks: as they stand in the prompt; each ends its last line.
    """

    system: str | None
    chunks: tuple[str, ...]
    asks: tuple[Ask, ...]


@dataclass(eq=False, slots=True)
class _Slot:
    """A chunk to be written, and how: known once all lengths are."""

    tokens: int = 0
    passage: Passage | None = None
    follows: bool = False  # directly on the slot before


@dataclass(eq=False, slots=True)
class _Unit:
    presentation: Presentation
    slots: list[_Slot]
    hop: _Slot | None = None

    @property
    def groups(self) -> list[list[_Slot]]:
        """Runs of slots that stay together."""
        together = self.presentation in ("pronoun", "heading")
        groups = [self.slots] if together else [[slot] for slot in self.slots]
        return groups + ([[self.hop]] if self.hop else [])


@dataclass(frozen=True, slots=True)
class _Told:
    """What the chunks say of one entity, and how a question can name it."""

    entity: Entity
    subject: Forms
    attributes: tuple[Attribute, ...]


@dataclass(slots=True)
class DocumentMaker:
    """Makes documents, in an order fixed by `rng`.

    Args:
        names: split of the names.
        wordings: split of the templates.
    """

    rng: random.Random
    language: Language
    names: Split
    wordings: Split
    count_tokens: CountTokens
    _writer: Writer = field(init=False)
    _told: list[_Told] = field(init=False)

    def make(self, chunk_tokens: Sequence[int], questions: int) -> Document:
        """A document whose chunks have about `chunk_tokens` tokens, with up to `questions` asks."""
        chinese = self.language.name == "chinese"
        source = NameSource(self.rng, self.names, chinese)
        self._writer = Writer(self.rng, self.language, self.wordings, source, self.count_tokens)
        self._told = []
        units = self._plan(len(chunk_tokens))
        slots = self._arrange(units)
        for slot, tokens in zip(slots, chunk_tokens, strict=True):
            slot.tokens = tokens
        asks = [ask for unit in units for ask in self._make_unit(unit)]
        chosen = self._choose(asks, questions)
        if self.rng.random() < UNKNOWN_SHARE:
            chosen[questions - 1 :] = [self._unanswered()]
        self.rng.shuffle(chosen)
        return Document(self._system(), self._write(slots), tuple(chosen))

    def _plan(self, chunks: int) -> list[_Unit]:
        units: list[_Unit] = []
        left = chunks
        while left:
            presentation = self.rng.choice(get_args(Presentation))
            if left == 1:
                presentation = "plain"
            size = 1 if presentation == "plain" else 2
            unit = _Unit(presentation, [_Slot() for _ in range(size)])
            if presentation in ("pronoun", "heading"):
                unit.slots[1].follows = True
            left -= size
            if left and self.rng.random() < VIA_SHARE[presentation]:
                unit.hop = _Slot()
                left -= 1
            units.append(unit)
        return units

    def _arrange(self, units: Sequence[_Unit]) -> list[_Slot]:
        groups = [group for unit in units for group in unit.groups]
        self.rng.shuffle(groups)
        slots = [slot for group in groups for slot in group]
        for unit in units:
            if unit.presentation == "corrected":
                first, second = (slots.index(slot) for slot in unit.slots)
                if first > second:
                    slots[first], slots[second] = slots[second], slots[first]
        return slots

    def _make_unit(self, unit: _Unit) -> list[Ask]:
        """Decide what the unit's slots say; returns the questions on it."""
        writer = self._writer
        relation: Relation | None = None
        kinds = list(self.language.attributes)
        if unit.hop:
            relation = self.rng.choice(self.language.relations)
            kinds = [relation.target]
            if unit.presentation == "pronoun":
                relations = [r for r in self.language.relations if r.target == "person"]
                relation, kinds = self.rng.choice(relations), ["person"]
        elif unit.presentation == "pronoun":
            kinds = ["person"]
        entity = writer.names.entity(self.rng.choice(kinds))
        # The length that the statements have to fit into; the first of a pair is only a name.
        room = unit.slots[-1].tokens
        if unit.presentation == "corrected":
            room = min(slot.tokens for slot in unit.slots)
        known = self.language.attributes[entity.kind]
        count = max(1, min(MAX_FACTS, len(known), room // TOKENS_PER_FACT))
        attributes = self.rng.sample(known, count)
        facts = [(attribute, writer.value(attribute)) for attribute in attributes]
        present: dict[Presentation, Callable[[], list[str]]] = {
            "plain": lambda: self._plain(unit, entity, facts),
            "pronoun": lambda: self._pronoun(unit, entity, facts),
            "heading": lambda: self._heading(unit, entity, facts),
            "corrected": lambda: self._corrected(unit, entity, facts),
        }
        answers = present[unit.presentation]()
        direct: Kind = "single" if unit.presentation == "plain" else unit.presentation
        asks: list[Ask] = []
        phrase = self._hop(unit.hop, relation, entity) if unit.hop and relation else None
        self._told.append(_Told(entity, phrase or writer.by_name(entity), tuple(attributes)))
        for (attribute, old), answer in zip(facts, answers, strict=True):
            kind = direct
            if unit.presentation == "corrected" and answer == old:
                kind = "single"
            if phrase and self.rng.random() < 0.8:
                kind = "two_hop" if kind == "single" else "chain"
                asks.append(self._ask(attribute, phrase, answer, kind))
            else:
                asks.append(self._ask(attribute, writer.by_name(entity), answer, kind))
        return asks

    def _plain(self, unit: _Unit, entity: Entity, facts: list[tuple[Attribute, str]]) -> list[str]:
        writer = self._writer
        if self.rng.random() < 0.15:
            entry = "\n".join([writer.heading(writer.by_name(entity)), *writer.notes(facts)])
            unit.slots[0].passage = Passage((entry,), (Zone.ANYTHING,) * 2, as_lines=True)
        else:
            said = [writer.state(a, writer.by_name(entity), value) for a, value in facts]
            unit.slots[0].passage = Passage.around(said)
        return [value for _, value in facts]

    def _pronoun(
        self, unit: _Unit, entity: Entity, facts: list[tuple[Attribute, str]]
    ) -> list[str]:
        writer = self._writer
        templates = self.language.introductions.of(self.wordings)
        introduction = write(self.rng, templates, writer.by_name(entity))
        said = tuple(writer.state(a, writer.by_pronoun(entity), value) for a, value in facts)
        unit.slots[0].passage = Passage((introduction,), (Zone.ANYTHING, Zone.IMPERSONAL))
        zones = (*[Zone.IMPERSONAL] * len(said), Zone.ANYTHING)
        unit.slots[1].passage = Passage(said, zones)
        return [value for _, value in facts]

    def _heading(
        self, unit: _Unit, entity: Entity, facts: list[tuple[Attribute, str]]
    ) -> list[str]:
        writer = self._writer
        heading = (writer.heading(writer.by_name(entity)),)
        notes = tuple(writer.notes(facts))
        unit.slots[0].passage = Passage(heading, (Zone.ANYTHING, Zone.CLOSED), as_lines=True)
        # Sentences between the notes name whom they are about.
        between = self.rng.choice((Zone.CLOSED, Zone.IMPERSONAL))
        zones = (*[between] * len(notes), Zone.ANYTHING)
        unit.slots[1].passage = Passage(notes, zones, as_lines=True)
        return [value for _, value in facts]

    def _corrected(
        self, unit: _Unit, entity: Entity, facts: list[tuple[Attribute, str]]
    ) -> list[str]:
        writer = self._writer
        subject = writer.by_name(entity)
        unit.slots[0].passage = Passage.around([writer.state(a, subject, v) for a, v in facts])
        corrected = set(self.rng.sample(range(len(facts)), self.rng.randint(1, len(facts))))
        corrections: list[str] = []
        answers: list[str] = []
        for number, (attribute, old) in enumerate(facts):
            value = old
            if number in corrected:
                while value == old:
                    value = writer.value(attribute)
                corrections.append(writer.correct(attribute, subject, old, value))
            answers.append(value)
        unit.slots[1].passage = Passage.around(corrections)
        return answers

    def _hop(self, slot: _Slot, relation: Relation, entity: Entity) -> Forms:
        """Write the first hop; returns the entity's forms by the person that leads to it."""
        writer = self._writer
        person = writer.by_name(writer.names.entity("person"))
        said = write(
            self.rng, relation.says.of(self.wordings), {**person, "b": writer.by_name(entity)["s"]}
        )
        slot.passage = Passage.around([said])
        return self._phrase(relation, person)

    def _choose(self, asks: list[Ask], questions: int) -> list[Ask]:
        """Some of the asks, the rare kinds first."""
        self.rng.shuffle(asks)
        by_kind: dict[Kind, list[Ask]] = {}
        for ask in asks:
            by_kind.setdefault(ask.kind, []).append(ask)
        chosen: list[Ask] = []
        while by_kind and len(chosen) < questions:
            for kind in list(by_kind):
                chosen.append(by_kind[kind].pop())
                if not by_kind[kind]:
                    del by_kind[kind]
        return chosen

    def _unanswered(self) -> Ask:
        """A question that the chunks do not answer."""
        writer = self._writer
        told = self.rng.choice(self._told)
        case = self.rng.choice(("attribute", "attribute", "entity", "relation"))
        if len(told.attributes) == len(self.language.attributes[told.entity.kind]):
            case = "entity"
        if case == "attribute":
            kind, subject = told.entity.kind, told.subject
        elif case == "entity":
            kind = self.rng.choice(list(self.language.attributes))
            subject = writer.by_name(writer.names.entity(kind))
        else:
            relation = self.rng.choice(self.language.relations)
            kind = relation.target
            person = told.entity if told.entity.kind == "person" else writer.names.entity("person")
            subject = self._phrase(relation, writer.by_name(person))
        attributes = [
            attribute
            for attribute in self.language.attributes[kind]
            if case != "attribute" or attribute not in told.attributes
        ]
        return self._ask(self.rng.choice(attributes), subject, self.language.unknown, "unknown")

    def _ask(self, attribute: Attribute, subject: Forms, answer: str, kind: Kind) -> Ask:
        question = self._writer.ask(attribute, subject)
        if self.rng.random() < BENCHMARK_QUESTION_SHARE:
            return Ask(f"\nQuestion: {question}", answer, kind)
        line = write(self.rng, self.language.questions.of(self.wordings), {"q": question})
        return Ask(f"\n{line}", answer, kind)

    def _phrase(self, relation: Relation, person: Forms) -> Forms:
        phrase = write(self.rng, relation.names.of(self.wordings), {"s": person["s"]})
        return {"s": phrase, "S": phrase[:1].upper() + phrase[1:]}

    def _system(self) -> str | None:
        if self.rng.random() < BENCHMARK_SYSTEM_SHARE:
            return None
        return self.rng.choice(self.language.systems.of(self.wordings))

    def _write(self, slots: Sequence[_Slot]) -> tuple[str, ...]:
        titled = self.rng.random() < TITLED_SHARE
        number = self.rng.randint(1, 400)
        title = (self.rng.choice(self.language.titles.of(self.wordings)),)
        chunks: list[str] = []
        for slot in slots:
            assert slot.passage is not None
            text = self._writer.fill(slot.passage, slot.tokens)
            number += self.rng.randint(1, 9)
            if titled and not slot.follows:
                text = f"{write(self.rng, title, {'n': str(number)})}\n{text}"
            chunks.append(f"{text}\n")
        return tuple(chunks)
