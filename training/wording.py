"""Templates: many ways to say one thing, some of which only the evaluation sees.

A template's fields are `{s}` (whom or what it is about), `{S}` (the same at the start of a
sentence), `{own}` and `{Own}` (its possessive), `{v}` (the value), `{np}` (the value with its
article) and a few more where noted. A template is used only where all its fields have a form:
pronouns have no `{s}`, and the long subjects of two-hop questions have no `{own}`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter
from typing import Literal

Split = Literal["train", "held_out"]
EntityKind = Literal["person", "company", "town", "ship", "book", "museum"]
Forms = Mapping[str, str]

HELD_OUT_MARK = "* "


@dataclass(frozen=True, slots=True)
class Wordings:
    """Templates for one thing."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]

    def of(self, split: Split) -> tuple[str, ...]:
        return self.train if split == "train" else self.held_out

    def __add__(self, other: Wordings) -> Wordings:
        return Wordings(self.train + other.train, self.held_out + other.held_out)


def ways(text: str) -> Wordings:
    """One template a line; those that start with an asterisk are held out."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return Wordings(
        tuple(line for line in lines if not line.startswith(HELD_OUT_MARK)),
        tuple(line[len(HELD_OUT_MARK) :] for line in lines if line.startswith(HELD_OUT_MARK)),
    )


@dataclass(frozen=True, slots=True)
class Attribute:
    """One thing an entity has exactly one of.

    Attributes:
        label: what notes and corrections call it.
        values: a word list, or what is made up: "person", "company", "town", "river", "year" or
            "number".
        says: statements.
        asks: questions.
        noun: the value within a sentence.
    """

    label: str
    values: tuple[str, ...] | str
    says: Wordings
    asks: Wordings
    noun: str = "{v}"


@dataclass(frozen=True, slots=True)
class Relation:
    """How a person leads to another entity, the first hop of a question.

    Attributes:
        says: statements; `{s}` is the person and `{b}` the entity.
        names: the entity named by the person, as in "the teacher of {s}".
    """

    target: EntityKind
    says: Wordings
    names: Wordings


@dataclass(frozen=True, slots=True)
class Language:
    """All that is written in one language.

    Attributes:
        joiner: between two sentences of a paragraph.
        unknown: the answer where the passages do not tell.
        attributes: by the kind of entity.
        introductions: sentences that only name a person.
        corrections: with `{label}`, `{s}`, `{old}` and `{np}`; later they hold.
        headings: lines above notes on `{s}`.
        notes: lines under a heading, with `{label}`, `{Label}` and `{v}`.
        narrative: sentences without any name, fact or pronoun for a person.
        titles: first lines of chunks, with a number `{n}`.
        questions: how the question, `{q}`, follows the chunks.
        systems: system prompts beside the benchmark's.
    """

    name: str
    joiner: str
    unknown: str
    attributes: Mapping[EntityKind, tuple[Attribute, ...]]
    relations: tuple[Relation, ...]
    introductions: Wordings
    corrections: Wordings
    headings: Wordings
    notes: Wordings
    narrative: Wordings
    titles: Wordings
    questions: Wordings
    systems: Wordings


@lru_cache(maxsize=None)
def _fields(template: str) -> frozenset[str]:
    return frozenset(field for _, field, _, _ in Formatter().parse(template) if field)


def write(rng: random.Random, templates: tuple[str, ...], forms: Forms) -> str:
    """One of the templates for which `forms` has every field, filled in."""
    fitting = [template for template in templates if _fields(template) <= forms.keys()]
    return rng.choice(fitting).format_map(forms)
