"""Which question is asked when, and with which chunks beside those it needs.

Chunks enter the prompts little by little: the first question brings a whole prompt of new ones,
every later one `(1 - overlap) * chunks` on average; the rest was seen before.
"""

from __future__ import annotations

import random
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from kvweave.bench.knowledge.units import Kind, Unit

Block = tuple[int, ...]
"""Numbers of the chunks that appear together or not at all."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A unit with the numbers of its chunks."""

    unit: Unit
    chunks: tuple[int, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        if self.unit.together:
            return (self.chunks,)
        return tuple((chunk,) for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of the schedule: a fact of a unit, and all the blocks of its prompt."""

    placed: Placed
    fact: int
    blocks: tuple[Block, ...]


class Unschedulable(ValueError):
    """No order of the questions gives the wanted overlap."""


def pool_size(questions: int, chunks: int, overlap: float) -> int:
    """How many different chunks `questions` prompts of `chunks` chunks have at this overlap."""
    return introduced(questions - 1, chunks, overlap)


def introduced(number: int, chunks: int, overlap: float) -> int:
    """How many chunks the questions up to the one of this number (from 0) have brought."""
    return chunks + round((1 - overlap) * chunks * number)


@dataclass(slots=True)
class Schedule:
    """Draws the questions one after the other; `plan` gives them all."""

    placed: Sequence[Placed]
    kinds: Sequence[Kind]
    chunks: int
    overlap: float
    rng: random.Random
    _seen: set[Block] = field(default_factory=set)
    _uses: dict[Block, int] = field(default_factory=dict)
    _asked: dict[int, int] = field(default_factory=dict)

    def plan(self) -> list[Asked]:
        """A question for each of `kinds`, as far as the chunks allow, in an order of its own.

        Raises:
            Unschedulable: at some point no question fits.
        """
        kinds = list(self.kinds)
        self.rng.shuffle(kinds)
        return [self._next(number, kinds) for number in range(len(kinds))]

    def _next(self, number: int, kinds: list[Kind]) -> Asked:
        budget = introduced(number, self.chunks, self.overlap) - sum(map(len, self._seen))
        budget = min(budget, self.chunks)
        index = self._pick_unit(kinds, budget)
        placed = self.placed[index]
        fact = self._asked.get(index, 0)
        self._asked[index] = fact + 1

        support = list(placed.blocks)
        fresh = [block for block in support if block not in self._seen]
        others = [b for p in self.placed for b in p.blocks if b not in support]
        room = self.chunks - _size(support)
        new = self._fill(
            [block for block in others if block not in self._seen],
            min(budget - _size(fresh), room),
            first=self._begun(),
        )
        old = self._fill([block for block in others if block in self._seen], room - _size(new))
        if _size(new) + _size(old) != room:
            raise Unschedulable(f"question {number}: no {room - _size(new)} seen chunks to add")
        blocks = (*support, *new, *old)
        self._seen.update(blocks)
        for block in blocks:
            self._uses[block] = self._uses.get(block, 0) + 1
        return Asked(placed, fact, blocks)

    def _pick_unit(self, kinds: list[Kind], budget: int) -> int:
        """A unit whose unseen chunks fit the budget; takes its kind out of `kinds`.

        It is of the first of `kinds` that has one, or of any if none has.
        """
        unseen = {
            index: _size([block for block in placed.blocks if block not in self._seen])
            for index, placed in enumerate(self.placed)
            if self._asked.get(index, 0) < len(placed.unit.facts)
        }
        fitting = [index for index, size in unseen.items() if size <= budget]
        if not fitting:
            raise Unschedulable("every question left needs more new chunks than the overlap allows")
        # Beside what it needs, the prompt should have room for all the new chunks that are due.
        roomy = [
            index
            for index in fitting
            if self.chunks - len(self.placed[index].chunks) >= budget - unseen[index]
        ]
        fitting = roomy or fitting
        possible = {self.placed[index].unit.kind for index in fitting}
        kind = next((kind for kind in kinds if kind in possible), None)
        if kind is None:
            kinds.pop()
        else:
            kinds.remove(kind)
            fitting = [index for index in fitting if self.placed[index].unit.kind == kind]
        # What a question needs is as likely to be old as anything else in its prompt.
        want_seen = self.rng.random() < self.overlap
        wanted = [
            index
            for index in fitting
            if unseen[index] == (0 if want_seen else len(self.placed[index].chunks))
        ] or fitting
        least = min(self._asked.get(index, 0) for index in wanted)
        return self.rng.choice([i for i in wanted if self._asked.get(i, 0) == least])

    def _begun(self) -> set[Block]:
        """Blocks of units of which another block was seen; wholly new units are kept for later."""
        return {
            block
            for placed in self.placed
            if any(block in self._seen for block in placed.blocks)
            for block in placed.blocks
        }

    def _fill(
        self, blocks: Sequence[Block], size: int, first: Container[Block] = ()
    ) -> list[Block]:
        """Blocks of `size` chunks together if there are such: those in `first`, then mostly the
        less used ones."""

        def rank(block: Block) -> tuple[bool, float]:
            return block not in first, (1 + self._uses.get(block, 0)) * self.rng.random()

        order = sorted(blocks, key=rank)
        chosen: list[Block] = []
        for block in order:
            if len(block) <= size:
                chosen.append(block)
                size -= len(block)
        return chosen


def _size(blocks: Sequence[Block]) -> int:
    return sum(len(block) for block in blocks)
