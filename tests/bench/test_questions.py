from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kvweave.bench.questions import Chunk, Question, overlap_share, reorder


def question(ids: str, **pairs: tuple[tuple[str, str], ...]) -> Question:
    return Question("?", ("!",), tuple(Chunk(i, f"text {i}") for i in ids), **pairs)


@st.composite
def constrained(draw: st.DrawFn) -> Question:
    ids = "abcdefgh"[: draw(st.integers(1, 8))]
    neighbours = list(pairwise(ids))
    ordered = [(a, b) for i, a in enumerate(ids) for b in ids[i + 1 :]]
    together = draw(st.lists(st.sampled_from(neighbours), unique=True)) if neighbours else []
    in_order = draw(st.lists(st.sampled_from(ordered), unique=True, max_size=3)) if ordered else []
    return question(ids, together=tuple(together), in_order=tuple(in_order))


@given(constrained(), st.integers())
def test_another_order_has_the_same_chunks_and_keeps_the_pairs(
    given_question: Question, seed: int
) -> None:
    other = reorder(given_question, [], random.Random(seed))
    ids = [chunk.id for chunk in other.chunks]
    assert sorted(ids) == sorted(chunk.id for chunk in given_question.chunks)
    assert set(given_question.together) <= set(pairwise(ids))
    assert all(ids.index(first) < ids.index(second) for first, second in given_question.in_order)


def test_chunks_leave_the_places_to_avoid() -> None:
    first = question("abcdefgh")
    other = reorder(first, [first.positions()], random.Random(0))
    assert all(other.positions()[chunk] != place for chunk, place in first.positions().items())


def test_where_no_other_order_is_allowed_the_given_one_stays() -> None:
    fixed = question("abc", together=(("a", "b"), ("b", "c")))
    assert reorder(fixed, [fixed.positions()], random.Random(0)) == fixed


def test_a_repeated_chunk_stays_repeated() -> None:
    assert len(reorder(question("aab"), [], random.Random(0)).chunks) == 3


def test_overlap_counts_chunks_of_earlier_questions_only() -> None:
    assert overlap_share([question("ab"), question("bc"), question("cd")]) == 0.5
    assert overlap_share([question("aa")]) == 0
