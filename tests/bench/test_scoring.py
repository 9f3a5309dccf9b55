from __future__ import annotations

import itertools
import math
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kvweave.bench.scoring import (
    best_f1,
    contains_answer,
    exact_match,
    kl_divergence,
    normalize,
    same_top1,
    token_f1,
)

WORDS = st.lists(
    st.sampled_from(["red", "fox", "Vale", "the", "1420", "a", "fox-hole"]), max_size=5
)
PHRASES = WORDS.map(" ".join)


def brute_force_f1(answer: list[str], reference: list[str]) -> float:
    """F1 with the overlap found by trying every one-to-one pairing of equal words."""
    if not answer or not reference:
        return float(answer == reference)
    short, long = sorted((answer, reference), key=len)
    overlap = max(
        sum(left == right for left, right in zip(short, pairing, strict=True))
        for pairing in itertools.permutations(long, len(short))
    )
    if not overlap:
        return 0.0
    precision, recall = overlap / len(answer), overlap / len(reference)
    return 2 * precision * recall / (precision + recall)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return (shifted - np.log(np.exp(shifted).sum())).astype(np.float32)


LOGITS = arrays(np.float64, 6, elements=st.floats(-12, 12))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Fox!", "fox"),
        ("a red, red fox.", "red red fox"),
        ("An answer", "answer"),
        ("Theatre", "theatre"),
        ("  1,420 ", "1420"),
        ("the", ""),
    ],
)
def test_normalisation_is_squads(text: str, expected: str) -> None:
    assert normalize(text) == expected


@given(st.text(alphabet=string.ascii_letters + string.punctuation + " ", max_size=30))
def test_normalising_lowers_strips_punctuation_and_single_spaces(text: str) -> None:
    normal = normalize(text)
    assert normal == normal.lower().strip()
    assert "  " not in normal
    assert not set(normal) & set(string.punctuation)
    assert not set(normal.split()) & {"a", "an", "the"}


@given(PHRASES, PHRASES)
def test_f1_equals_a_brute_force_pairing_of_words(answer: str, reference: str) -> None:
    expected = brute_force_f1(normalize(answer).split(), normalize(reference).split())
    assert token_f1(answer, reference) == pytest.approx(expected)


@given(PHRASES, PHRASES)
def test_f1_is_symmetric_and_within_bounds(answer: str, reference: str) -> None:
    score = token_f1(answer, reference)
    assert 0 <= score <= 1
    assert score == token_f1(reference, answer)


@given(PHRASES, st.lists(PHRASES, min_size=1, max_size=3))
def test_best_f1_is_the_highest_over_the_accepted_answers(
    answer: str, references: list[str]
) -> None:
    assert best_f1(answer, references) == max(token_f1(answer, one) for one in references)


@given(PHRASES, st.lists(PHRASES, min_size=1, max_size=3))
def test_an_exact_match_has_f1_one_and_contains_the_answer(
    answer: str, references: list[str]
) -> None:
    if exact_match(answer, references):
        assert best_f1(answer, references) == 1
        assert contains_answer(answer, references)


def test_an_answer_within_a_sentence_is_found_but_no_exact_match() -> None:
    assert contains_answer("Her coat is dark red.", ["dark red"])
    assert not exact_match("Her coat is dark red.", ["dark red"])


def test_an_answer_within_a_longer_word_is_not_found() -> None:
    assert not contains_answer("She is covered.", ["red"])


@given(LOGITS, LOGITS)
def test_kl_equals_the_sum_over_tokens(full: np.ndarray, arm: np.ndarray) -> None:
    p, q = log_softmax(full), log_softmax(arm)
    expected = sum(
        math.exp(a) * (float(a) - float(b)) for a, b in zip(p.tolist(), q.tolist(), strict=True)
    )
    assert kl_divergence(p, q) == pytest.approx(max(0.0, expected), abs=1e-6)


@given(LOGITS)
def test_kl_of_a_distribution_with_itself_is_zero(logits: np.ndarray) -> None:
    assert kl_divergence(log_softmax(logits), log_softmax(logits)) == 0


def test_kl_is_not_symmetric_and_full_comes_first() -> None:
    sure = log_softmax(np.array([8.0, 0, 0]))
    unsure = log_softmax(np.array([1.0, 0, 0]))
    assert kl_divergence(unsure, sure) > kl_divergence(sure, unsure) > 0


def test_kl_is_infinite_where_the_arm_rules_out_what_full_allows() -> None:
    full = np.log(np.array([0.5, 0.5], np.float32))
    arm = np.array([0, -np.inf], np.float32)
    assert kl_divergence(full, arm) == math.inf
    assert kl_divergence(arm, full) == pytest.approx(math.log(2))


def test_kl_over_vocabularies_of_different_size_is_refused() -> None:
    with pytest.raises(ValueError, match="3 and 4 tokens"):
        kl_divergence(np.zeros(3, np.float32), np.zeros(4, np.float32))


@given(LOGITS, LOGITS)
def test_top1_is_same_when_the_likeliest_token_is(full: np.ndarray, arm: np.ndarray) -> None:
    assert same_top1(log_softmax(full), log_softmax(arm)) == (
        int(np.argmax(log_softmax(full))) == int(np.argmax(log_softmax(arm)))
    )
