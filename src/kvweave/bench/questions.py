"""Questions with their chunks, and the orders the chunks can stand in."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

ORDER_ATTEMPTS = 300


@dataclass(frozen=True, slots=True)
class Chunk:
    """One retrieved passage."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its accepted answers and the chunks of its prompt, in prompt order.

    `together` lists pairs of chunk ids of which the second must directly follow the first, and
    `in_order` pairs of which the second must come later, for the question to keep its meaning when
    the chunks change order.
    """

    question: str
    answers: tuple[str, ...]
    chunks: tuple[Chunk, ...]
    kind: str | None = None
    together: tuple[tuple[str, str], ...] = ()
    in_order: tuple[tuple[str, str], ...] = ()

    def positions(self) -> dict[str, int]:
        """Place of each chunk id in the prompt; of a repeated one, the last place."""
        return {chunk.id: place for place, chunk in enumerate(self.chunks)}


def reorder(question: Question, avoid: Sequence[Mapping[str, int]], rng: random.Random) -> Question:
    """The same question with its chunks in another order.

    The pairs of `together` and `in_order` are kept. Of several random orders, the one that leaves
    the fewest chunks at a place they have in one of `avoid` (chunk id -> place) is taken.
    """
    blocks = _blocks(question)
    best: tuple[Chunk, ...] = question.chunks
    fewest = len(question.chunks) + 1
    for _ in range(ORDER_ATTEMPTS):
        chunks = tuple(chunk for block in rng.sample(blocks, len(blocks)) for chunk in block)
        place = {chunk.id: i for i, chunk in enumerate(chunks)}
        if any(place[first] > place[second] for first, second in question.in_order):
            continue
        stuck = sum(places.get(c.id) == i for i, c in enumerate(chunks) for places in avoid)
        if stuck < fewest:
            best, fewest = chunks, stuck
        if fewest == 0:
            break
    return replace(question, chunks=best)


def _blocks(question: Question) -> list[list[Chunk]]:
    """Runs of chunks that have to stay together, in prompt order."""
    followers = dict(question.together)
    heads = set(followers.values())
    by_id = {chunk.id: chunk for chunk in question.chunks}
    blocks: list[list[Chunk]] = []
    for chunk in question.chunks:
        if chunk.id in heads:
            continue
        block = [chunk]
        while (follower := followers.get(block[-1].id)) is not None and len(block) <= len(by_id):
            block.append(by_id[follower])
        blocks.append(block)
    return blocks


def overlap_share(questions: Sequence[Question]) -> float:
    """Share of the chunks of all questions but the first that an earlier question had."""
    seen: set[str] = set()
    old = total = 0
    for number, question in enumerate(questions):
        if number:
            old += sum(chunk.id in seen for chunk in question.chunks)
            total += len(question.chunks)
        seen.update(chunk.id for chunk in question.chunks)
    return old / total if total else 0.0
