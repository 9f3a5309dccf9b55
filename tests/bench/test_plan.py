from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvweave.bench import BenchError, Question, parse_arms
from kvweave.bench.arms import ARMS, turn
from kvweave.bench.knowledge import KnowledgeSpec, generate
from kvweave.bench.plan import COLD_QUESTIONS, Step, make_plan

QUESTIONS = generate(KnowledgeSpec(questions=12, chunk_tokens=60))


def plan(*, cold: bool = True, steady: int | None = None, arms: tuple[str, ...] = tuple(ARMS)):
    return make_plan(QUESTIONS, arms, cold=cold, steady=steady, seed=0)


def chunks(question: Question) -> list[str]:
    return [chunk.id for chunk in question.chunks]


def of_phase(steps: list[Step], phase: str) -> list[Step]:
    return [step for step in steps if step.phase == phase]


@given(st.lists(st.sampled_from(list(ARMS)), unique=True, min_size=1))
def test_every_arm_takes_every_place_equally_often(arms: list[str]) -> None:
    turns = [turn(arms, number) for number in range(len(arms) * 3)]
    for place in range(len(arms)):
        assert Counter(order[place] for order in turns) == dict.fromkeys(arms, 3)


def test_the_phases_follow_each_other() -> None:
    phases = [step.phase for step in plan()]
    assert phases == ["cold"] * COLD_QUESTIONS + ["first_pass"] * 12 + ["steady"] * 12


def test_phases_that_are_not_wanted_are_left_out() -> None:
    assert {step.phase for step in plan(cold=False, steady=0)} == {"first_pass"}


def test_the_first_pass_asks_the_questions_as_they_are() -> None:
    assert [step.question for step in of_phase(plan(), "first_pass")] == QUESTIONS


@pytest.mark.parametrize("phase", ["cold", "steady"])
def test_the_other_phases_have_every_chunk_at_another_place(phase: str) -> None:
    for step in of_phase(plan(), phase):
        first = QUESTIONS[step.index]
        assert sorted(chunks(step.question)) == sorted(chunks(first))
        assert all(a != b for a, b in zip(chunks(step.question), chunks(first), strict=True))


def test_nothing_is_stored_while_cold() -> None:
    assert all(step.storing is None for step in of_phase(plan(), "cold"))


def test_only_the_last_arm_that_uses_chunks_stores_them() -> None:
    for step in of_phase(plan(), "first_pass"):
        assert step.storing is not None
        after = step.arms[step.arms.index(step.storing) + 1 :]
        assert ARMS[step.storing].uses_chunks
        assert not any(ARMS[arm].uses_chunks for arm in after)


def test_arms_without_chunks_store_nothing() -> None:
    assert all(step.storing is None for step in plan(arms=("full", "prefix")))


def test_arms_are_parsed_in_their_order() -> None:
    assert parse_arms(" blend, full,") == ("blend", "full")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("full,blnd", "there is no arm 'blnd'; choose from full, prefix, reuse, blend"),
        (" , ", "no arm is named"),
        ("full,full", "each arm can be named once only"),
    ],
)
def test_arms_that_make_no_sense_are_refused(text: str, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        parse_arms(text)
