"""Put names, units, passages and the schedule together into questions with chunks."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import get_args

from kvweave.bench.errors import BenchError
from kvweave.bench.knowledge.names import NameSource
from kvweave.bench.knowledge.passages import CountTokens, Filler
from kvweave.bench.knowledge.schedule import (
    Asked,
    Placed,
    Schedule,
    Unschedulable,
    pool_size,
)
from kvweave.bench.knowledge.units import CHUNKS, MAX_FACTS, Kind, UnitFactory
from kvweave.bench.questions import Chunk, Question, reorder

KIND_NAMES: tuple[Kind, ...] = get_args(Kind)
MIN_CHUNKS = 3
MIN_CHUNK_TOKENS = 30
SCHEDULE_ATTEMPTS = 50
TOKENS_PER_WORD = 1.6
"""English with many made-up names, in the vocabularies of small models."""


def approximate_tokens(text: str) -> int:
    """Tokens of `text` where no tokenizer can be asked, from its words."""
    return round(TOKENS_PER_WORD * len(text.split()))


@dataclass(frozen=True, slots=True)
class KnowledgeSpec:
    """What to generate.

    Attributes:
        questions: how many questions, the five kinds in turn.
        chunks: chunks in each prompt.
        chunk_tokens: length of a chunk in tokens, about.
        overlap: share of a question's chunks that earlier questions had, from the second one on.
        seed: equal specs and token counts give equal questions.

    Raises:
        BenchError: a value can't be used.
    """

    questions: int = 50
    chunks: int = 8
    chunk_tokens: int = 210
    overlap: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        if self.questions < 1:
            raise BenchError(f"questions must be 1 or more, not {self.questions}")
        if self.chunks < MIN_CHUNKS:
            raise BenchError(f"chunks must be {MIN_CHUNKS} or more, not {self.chunks}")
        if not 0 <= self.overlap <= 1:
            raise BenchError(f"overlap must lie between 0 and 1, not {self.overlap}")
        if self.chunk_tokens < MIN_CHUNK_TOKENS:
            raise BenchError(
                f"chunks of {self.chunk_tokens} tokens are too short to hold their facts; "
                f"{MIN_CHUNK_TOKENS} or more are needed: ask for longer prompts or fewer chunks"
            )


def generate(spec: KnowledgeSpec, count_tokens: CountTokens = approximate_tokens) -> list[Question]:
    """Questions of all kinds with their chunks, in the order they are to be asked.

    Raises:
        BenchError: so many questions can't share so few chunks.
    """
    for attempt in range(SCHEDULE_ATTEMPTS):
        names = NameSource(random.Random(f"{spec.seed}/names"))
        placed = _place_units(spec, names)
        schedule = Schedule(
            placed,
            [KIND_NAMES[number % len(KIND_NAMES)] for number in range(spec.questions)],
            spec.chunks,
            spec.overlap,
            random.Random(f"{spec.seed}/schedule/{attempt}"),
        )
        try:
            asked = schedule.plan()
        except Unschedulable:
            continue
        return _write(
            spec, placed, asked, Filler(random.Random(f"{spec.seed}/filler"), names), count_tokens
        )
    raise BenchError(
        f"{spec.questions} questions over {spec.chunks} chunks each can't be arranged at an "
        f"overlap of {spec.overlap}: ask for fewer questions, more chunks or a lower overlap"
    )


def _place_units(spec: KnowledgeSpec, names: NameSource) -> list[Placed]:
    """Units of all kinds in turn whose chunks make up the whole pool."""
    kinds: list[Kind] = []
    left = pool_size(spec.questions, spec.chunks, spec.overlap)
    while left:
        kind = KIND_NAMES[len(kinds) % len(KIND_NAMES)]
        if CHUNKS[kind] > left:
            kind = "single"
        kinds.append(kind)
        left -= CHUNKS[kind]
    # One fact more than the questions need leaves the schedule a choice.
    facts = min(MAX_FACTS, math.ceil(spec.questions / len(kinds)) + 1)
    factory = UnitFactory(random.Random(f"{spec.seed}/units"), names, facts)
    placed: list[Placed] = []
    number = 0
    for kind in kinds:
        placed.append(Placed(factory.make(kind), tuple(range(number, number + CHUNKS[kind]))))
        number += CHUNKS[kind]
    return placed


def _write(
    spec: KnowledgeSpec,
    placed: list[Placed],
    asked: list[Asked],
    filler: Filler,
    count_tokens: CountTokens,
) -> list[Question]:
    rng = random.Random(f"{spec.seed}/places")
    chunks: list[Chunk] = []
    for entry in placed:
        for passage in entry.unit.passages:
            text = passage.write(filler, rng, spec.chunk_tokens, count_tokens)
            chunks.append(Chunk(f"kb{spec.seed}-{len(chunks):03d}", text))
    pairs = {
        (entry.chunks[0], entry.chunks[1]): entry.unit for entry in placed if len(entry.chunks) == 2
    }

    order = random.Random(f"{spec.seed}/order")
    last: dict[str, int] = {}
    questions: list[Question] = []
    for turn in asked:
        numbers = [number for block in turn.blocks for number in block]
        present = [pair for pair in pairs if set(pair) <= set(numbers)]
        ids = {pair: (chunks[pair[0]].id, chunks[pair[1]].id) for pair in present}
        unit, fact = turn.placed.unit, turn.placed.unit.facts[turn.fact]
        question = Question(
            question=fact.question,
            answers=(fact.answer,),
            chunks=tuple(chunks[number] for number in numbers),
            kind=unit.kind,
            together=tuple(ids[pair] for pair in present if pairs[pair].together),
            in_order=tuple(ids[pair] for pair in present if pairs[pair].in_order),
        )
        question = reorder(question, [last], order)
        last.update(question.positions())
        questions.append(question)
    return questions
