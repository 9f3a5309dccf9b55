"""Passages: the sentences that matter, and filler around them up to a length."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from training.names import Entity, NameSource
from training.wording import (
    Attribute,
    EntityKind,
    Forms,
    Language,
    Split,
    Wordings,
    fitting_templates,
    write,
)

CountTokens = Callable[[str], int]

PRONOUN_SHARE = 0.4
"""Of the further statements about a person, those that say "she" or "he"."""
OWN_SHARE = 0.55
"""Of statements and questions, those in the attribute's own words."""
ASIDE_SHARE = 0.2


class Zone(Enum):
    """What filler may stand in a gap between the fixed sentences of a passage."""

    ANYTHING = auto()
    IMPERSONAL = auto()  # names no person, so that a later pronoun still means the one before
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Passage:
    """Fixed sentences in order; `zones[i]` stands before sentence i, the last one at the end."""

    fixed: tuple[str, ...]
    zones: tuple[Zone, ...]
    as_lines: bool = False

    @classmethod
    def around(cls, fixed: Sequence[str]) -> Passage:
        return cls(tuple(fixed), (Zone.ANYTHING,) * (len(fixed) + 1))


@dataclass(slots=True)
class Writer:
    """Writes sentences, headings and passages in one language with the wordings of one split."""

    rng: random.Random
    language: Language
    split: Split
    names: NameSource
    count_tokens: CountTokens

    def value(self, attribute: Attribute) -> str:
        """A value for this attribute; made-up names are new ones."""
        match attribute.values:
            case "person" | "company" | "town" as kind:
                return self.names.entity(kind).name
            case "river":
                return self.names.river()
            case "year":
                return str(self.rng.randint(1120, 2020))
            case "number":
                return str(self.rng.randint(12, 9800))
            case words:
                return self.rng.choice(words)

    def state(self, attribute: Attribute, subject: Forms, value: str) -> str:
        """A sentence that says `attribute` of the subject, now and then with an aside."""
        forms = {**subject, **self._said(attribute, value)}
        template = self._own_or_common(attribute.says, self.language.says, forms)
        if self.rng.random() >= ASIDE_SHARE:
            return template.format_map(forms)
        aside = self.rng.choice(self.language.asides.of(self.split))
        if not aside.startswith("{x}"):  # the statement does not begin the sentence
            forms |= {"S": forms.get("s", forms["S"].lower()), "Own": forms["own"]}
            template = template[0].lower() + template[1:]
        return aside.format(x=template.format_map(forms).rstrip(".。"))

    def ask(self, attribute: Attribute, subject: Forms) -> str:
        """A question for `attribute` of the subject."""
        forms = {**subject, "label": self.rng.choice(attribute.labels)}
        return self._own_or_common(attribute.asks, self.language.asks, forms).format_map(forms)

    def correct(self, attribute: Attribute, subject: Forms, old: str, value: str) -> str:
        """A sentence that replaces `old` by `value`."""
        forms = {**subject, **self._said(attribute, value), "old": attribute.noun.format(v=old)}
        return write(self.rng, self.language.corrections.of(self.split), forms)

    def heading(self, subject: Forms) -> str:
        return write(self.rng, self.language.headings.of(self.split), subject)

    def notes(self, facts: Sequence[tuple[Attribute, str]]) -> list[str]:
        """Lines under a heading, all in one style."""
        style = (self.rng.choice(self.language.notes.of(self.split)),)
        return [write(self.rng, style, self._said(a, value)) for a, value in facts]

    def fill(self, passage: Passage, tokens: int) -> str:
        """The passage as text of about `tokens` tokens.

        Filler goes into any gap with equal probability, which leaves the fixed sentences anywhere
        in the passage.
        """
        gaps: list[list[str]] = [[] for _ in passage.zones]
        length = self.count_tokens(self._joined(passage, gaps))
        while length < tokens:
            places = [
                (zone, at)
                for zone, kind in enumerate(passage.zones)
                if kind is not Zone.CLOSED
                for at in range(len(gaps[zone]) + 1)
            ]
            if not places:
                break
            zone, at = self.rng.choice(places)
            filler = self._filler(passage.zones[zone], passage.as_lines)
            added = self.count_tokens(filler)
            if length + added - tokens > tokens - length:
                break
            gaps[zone].insert(at, filler)
            length += added
        return self._joined(passage, gaps)

    def _joined(self, passage: Passage, gaps: list[list[str]]) -> str:
        parts = list(gaps[0])
        for sentence, gap in zip(passage.fixed, gaps[1:], strict=True):
            parts += [sentence, *gap]
        return ("\n" if passage.as_lines else self.language.joiner).join(parts)

    def _filler(self, zone: Zone, as_lines: bool) -> str:
        kind = self.rng.random()
        if kind < 0.15:
            return self.rng.choice(self.language.narrative.of(self.split))
        if kind < 0.45 and as_lines and zone is Zone.ANYTHING:
            return self._entry()
        return self._statements(zone)

    def _bystander(self, zone: Zone) -> tuple[Entity, list[Attribute]]:
        """An entity that no question is about, and what can be said of it in this zone."""
        kinds: list[EntityKind] = list(self.language.attributes)
        personal = zone is Zone.ANYTHING
        entity = self.names.entity(self.rng.choice(kinds if personal else kinds[1:]))
        attributes = self.language.attributes[entity.kind]
        return entity, [a for a in attributes if personal or a.values != "person"]

    def _statements(self, zone: Zone) -> str:
        entity, attributes = self._bystander(zone)
        said: list[str] = []
        for attribute in self.rng.sample(attributes, self.rng.choice((1, 1, 2))):
            subject = self.by_name(entity)
            if said and entity.kind == "person" and self.rng.random() < PRONOUN_SHARE:
                subject = self.by_pronoun(entity)
            said.append(self.state(attribute, subject, self.value(attribute)))
        return self.language.joiner.join(said)

    def _entry(self) -> str:
        entity, attributes = self._bystander(Zone.ANYTHING)
        facts = [(a, self.value(a)) for a in self.rng.sample(attributes, 2)]
        return "\n".join([self.heading(self.by_name(entity)), *self.notes(facts)])

    def by_name(self, entity: Entity) -> Forms:
        """The forms of an entity's name."""
        name = entity.name
        if self.language.name == "chinese":
            own = f"{name}的"
            return {"name": name, "s": name, "S": name, "own": own, "Own": own}
        s, S = name, name
        if entity.kind in ("ship", "museum"):
            s, S = f"the {name}", f"The {name}"
        ending = "'" if name.endswith("s") else "'s"
        return {"name": name, "s": s, "S": S, "own": s + ending, "Own": S + ending}

    def by_pronoun(self, entity: Entity) -> Forms:
        """The forms of a person's pronoun, which can't stand for every name."""
        if self.language.name == "chinese":
            pronoun = "她" if entity.gender == "she" else "他"
            own = f"{pronoun}的"
            return {"S": pronoun, "own": own, "Own": own}
        own = "her" if entity.gender == "she" else "his"
        return {"S": entity.gender.capitalize(), "own": own, "Own": own.capitalize()}

    def _said(self, attribute: Attribute, value: str) -> dict[str, str]:
        label = self.rng.choice(attribute.labels)
        return {
            "v": value,
            "np": attribute.noun.format(v=value),
            "label": label,
            "Label": label[:1].upper() + label[1:],
        }

    def _own_or_common(self, own: Wordings, common: Wordings, forms: Forms) -> str:
        """A template of the attribute's own, or one of those that fit every attribute."""
        if self.rng.random() < OWN_SHARE and (
            fitting := fitting_templates(own.of(self.split), forms)
        ):
            return self.rng.choice(fitting)
        return self.rng.choice(fitting_templates(common.of(self.split), forms))
