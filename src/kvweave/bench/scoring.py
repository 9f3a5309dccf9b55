"""Scores of one answer: against the accepted answers, and against the full prefill's."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from kvweave.divergence import LogProbs, kl_divergence, same_top1

__all__ = [
    "LogProbs",
    "best_f1",
    "contains_answer",
    "exact_match",
    "kl_divergence",
    "normalize",
    "same_top1",
    "token_f1",
]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """SQuAD's normalisation: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall over normalised words, with repetitions, 0..1.

    Where either has no words left, 1 if both have none, else 0.
    """
    given, wanted = normalize(answer).split(), normalize(reference).split()
    if not given or not wanted:
        return float(given == wanted)
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted))


def best_f1(answer: str, references: Sequence[str]) -> float:
    """The highest token F1 over all accepted answers."""
    return max(token_f1(answer, reference) for reference in references)


def exact_match(answer: str, references: Sequence[str]) -> bool:
    """Whether the normalised answer equals a normalised accepted answer."""
    return any(normalize(answer) == normalize(reference) for reference in references)


def contains_answer(answer: str, references: Sequence[str]) -> bool:
    """Whether an accepted answer's words stand in the answer, in a row.

    Fair to models that answer in whole sentences, which F1 and exact match are not.
    """
    given = f" {normalize(answer)} "
    return any(f" {normalize(reference)} " in given for reference in references)
