"""The course of a run: which question is asked when, in which chunk order, by which arm first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvweave.bench.arms import ARMS, turn
from kvweave.bench.questions import Question, reorder

Phase = Literal["cold", "first_pass", "steady"]
COLD_QUESTIONS = 5


@dataclass(frozen=True, slots=True)
class Step:
    """One question, asked once by every arm with the same prompt.

    Attributes:
        phase: `cold`: no chunk is in the cache; `first_pass`: those that earlier questions brought;
            `steady`: all of them.
        index: number of the question in the data set, from 0.
        arms: in the order in which they ask.
        storing: the arm whose missing chunks enter the cache afterwards. It is the last one that
            uses chunks, so that no arm finds what another one brought for the same question.
    """

    phase: Phase
    index: int
    question: Question
    arms: tuple[str, ...]
    storing: str | None


def make_plan(
    questions: Sequence[Question],
    arms: Sequence[str],
    *,
    cold: bool,
    steady: int | None,
    seed: int,
) -> list[Step]:
    """The steps of a run: first passes over all questions, before and after it what is asked for.

    steady: how many questions are asked again at the end; None: all.

    The other phases ask questions in another chunk order than the first pass does, so that an
    exact-prefix cache gains nothing from the repetition.
    """
    rng = random.Random(f"{seed}/plan")
    steps: list[Step] = []

    def add(phase: Phase, index: int, question: Question, *, store: bool) -> None:
        order = turn(arms, len(steps))
        chunk_arms = [arm for arm in order if ARMS[arm].uses_chunks]
        storing = chunk_arms[-1] if store and chunk_arms else None
        steps.append(Step(phase, index, question, order, storing))

    if cold:
        for index, question in enumerate(questions[:COLD_QUESTIONS]):
            other = reorder(question, [question.positions()], rng)
            add("cold", index, other, store=False)
    for index, question in enumerate(questions):
        add("first_pass", index, question, store=True)
    for index, question in enumerate(questions[:steady]):
        other = reorder(question, [question.positions()], rng)
        add("steady", index, other, store=True)
    return steps
