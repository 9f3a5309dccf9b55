"""Templates: many ways to say one thing, some of which only the evaluation sees.

A template's fields are `{s}` (whom or what it is about), `{S}` (the same at the start of a
sentence), `{own}` and `{Own}` (its possessive), `{v}` (the value), `{np}` (the value with its
article), `{label}` (what is told of it) and a few more where noted. A template is used only where
all its fields have a form: pronouns have no `{s}`, and the long subjects of two-hop questions have
no `{own}`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from string import Formatter
from typing import Literal

Split = Literal["train", "held_out"]
EntityKind = Literal["person", "company", "town", "ship", "book", "museum"]
Forms = Mapping[str, str]

HELD_OUT_MARK = "~ "


@dataclass(frozen=True, slots=True)
class Wordings:
    """Templates for one thing."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]

    def of(self, split: Split) -> tuple[str, ...]:
        return self.train if split == "train" else self.held_out


def ways(text: str) -> Wordings:
    """One template a line; those that begin with a tilde are held out.

    A template that the benchmark uses too must not be held out: its documents are trained on.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    return Wordings(
        tuple(line for line in lines if not line.startswith(HELD_OUT_MARK)),
        tuple(line.removeprefix(HELD_OUT_MARK) for line in lines if line.startswith(HELD_OUT_MARK)),
    )


@dataclass(frozen=True, slots=True)
class Attribute:
    """One thing an entity has exactly one of.

    Attributes:
        labels: what it is called.
        values: a word list, or what is made up: "person", "company", "town", "river", "year" or
            "number".
        says: statements of its own, beside those that fit every attribute.
        asks: questions of its own.
        noun: the value within a sentence.
    """

    labels: tuple[str, ...]
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
        says: statements that fit every attribute.
        asks: questions that fit every attribute.
        asides: sentences around a statement, `{x}`, which has no full stop.
        introductions: sentences that only name a person.
        corrections: with `{label}`, `{s}`, `{old}` and `{np}`; later they hold.
        headings: lines above notes on `{name}`.
        notes: lines under a heading, with `{label}`, `{Label}` and `{v}`.
        narrative: sentences without any name, fact or pronoun for a person.
        titles: first lines of chunks, with a number `{n}`.
        questions: how the question, `{q}`, stands on a line of its own after the chunks.
        systems: system prompts beside the benchmark's.
    """

    name: str
    joiner: str
    unknown: str
    attributes: Mapping[EntityKind, tuple[Attribute, ...]]
    says: Wordings
    asks: Wordings
    asides: Wordings
    relations: tuple[Relation, ...]
    introductions: Wordings
    corrections: Wordings
    headings: Wordings
    notes: Wordings
    narrative: Wordings
    titles: Wordings
    questions: Wordings
    systems: Wordings


@cache
def fields_of(template: str) -> frozenset[str]:
    """The names of the template's fields."""
    return frozenset(field for _, field, _, _ in Formatter().parse(template) if field)


def fitting_templates(templates: tuple[str, ...], forms: Forms) -> list[str]:
    """The templates for which `forms` has every field."""
    return [template for template in templates if fields_of(template) <= forms.keys()]


def write(rng: random.Random, templates: tuple[str, ...], forms: Forms) -> str:
    """One of the templates for which `forms` has every field, filled in.

    Raises:
        IndexError: there is none.
    """
    return rng.choice(fitting_templates(templates, forms)).format_map(forms)
