"""Sentences and questions about entities, from templates."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kvweave.bench.knowledge.attributes import Attribute
from kvweave.bench.knowledge.names import Entity, EntityKind


@dataclass(frozen=True, slots=True)
class Relation:
    """How a person leads to another entity, the first step of a two-hop question.

    `{s}` is the person and `{b}` the entity it leads to; `phrase` names that entity by the person.
    """

    target: EntityKind
    statements: tuple[str, ...]
    phrase: str


RELATIONS: tuple[Relation, ...] = (
    Relation(
        "person",
        ("{b} was the teacher of {s}.", "The teacher of {s} was {b}.", "{s} was taught by {b}."),
        "the teacher of {s}",
    ),
    Relation(
        "person",
        ("{s} is the cousin of {b}.", "The cousin of {s} is {b}."),
        "the cousin of {s}",
    ),
    Relation(
        "person",
        ("{b} lives next door to {s}.", "The neighbour of {s} is {b}."),
        "the neighbour of {s}",
    ),
    Relation(
        "company",
        ("{s} is employed by {b}.", "The employer of {s} is {b}.", "{s} works for {b}."),
        "the company that employs {s}",
    ),
    Relation(
        "town",
        ("{s} grew up in {b}.", "{s} spent a whole childhood in {b}."),
        "the town where {s} grew up",
    ),
)

INTRODUCTIONS = (
    "Many people in the valley have heard of {s}.",
    "Few visitors forget an afternoon with {s}.",
    "The next pages of this account deal with {s}.",
    "Among those who stayed there is {s}.",
    "Then there is {s}, of whom much could be told.",
)

CORRECTIONS = (
    "Correction: the {label} of {s} is {v}, not {old}.",
    "An earlier page was wrong about {s}: the {label} is {v} and not {old}.",
    "That the {label} of {s} is {old} was a mistake; it is {v}.",
    "It has since been found that the {label} of {s} is not {old} but {v}.",
)


def state(attribute: Attribute, entity: Entity, value: str, rng: random.Random) -> str:
    """A sentence that says `attribute` of `entity`, by name."""
    owner = f"{entity.name}'" if entity.name.endswith("s") else f"{entity.name}'s"
    template = rng.choice(attribute.statements)
    return template.format(s=entity.name, s_low=entity.name, own=owner, own_low=owner, v=value)


def state_by_pronoun(attribute: Attribute, entity: Entity, value: str, rng: random.Random) -> str:
    """A sentence that says `attribute` of `entity` without its name."""
    own = entity.possessive
    return rng.choice(attribute.statements).format(
        s=entity.gender.capitalize(),
        s_low=entity.gender,
        own=own.capitalize(),
        own_low=own,
        v=value,
    )


def note(attribute: Attribute, value: str) -> str:
    """A line under a heading, which does not name its subject."""
    return f"{attribute.label.capitalize()}: {value}."


def correct(attribute: Attribute, entity: Entity, old: str, value: str, rng: random.Random) -> str:
    """A sentence that replaces `old` by `value`."""
    return rng.choice(CORRECTIONS).format(
        label=attribute.label,
        s=entity.name,
        old=attribute.noun.format(v=old),
        v=attribute.noun.format(v=value),
    )


def ask(attribute: Attribute, subject: str, rng: random.Random) -> str:
    """A question whose whole answer is the value of `attribute`."""
    return rng.choice(attribute.questions).format(s=subject)
