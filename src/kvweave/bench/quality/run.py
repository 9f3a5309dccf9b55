"""Asks every question in every way that is asked for, and is not on record yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvweave.bench.quality.laboratory import Answer, Laboratory
from kvweave.bench.quality.records import FULL_ARM, Record, RecordFile
from kvweave.bench.questions import Question
from kvweave.bench.scoring import best_f1, exact_match, kl_divergence, same_top1
from kvweave.blend import SELECTORS

Arm = tuple[str, float]
"""Selector and ratio."""


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Questions under one name."""

    name: str
    questions: Sequence[Question]


def measure(
    laboratory: Laboratory,
    sets: Sequence[PromptSet],
    arms: Sequence[Arm],
    file: RecordFile,
    progress: Callable[[], object],
) -> None:
    """Measure what is missing; `progress` is called after each question of each set."""
    known = {(record.question, record.arm) for record in file.records}
    for prompts in sets:
        for index, question in enumerate(prompts.questions):
            place = (prompts.name, index)
            missing = [arm for arm in arms if (place, arm) not in known]
            if missing or (place, FULL_ARM) not in known:
                records = _ask(laboratory, place, question, missing)
                file.add(r for r in records if (r.question, r.arm) not in known)
            progress()


def _ask(
    laboratory: Laboratory, place: tuple[str, int], question: Question, arms: Sequence[Arm]
) -> list[Record]:
    prompt = laboratory.prompt(question)
    full = laboratory.full(prompt)

    def record(arm: Arm, answer: Answer, probe_seconds: float, layers_read: int) -> Record:
        return Record(
            model=laboratory.identity,
            prompts=place[0],
            index=place[1],
            selector=arm[0],
            ratio=arm[1],
            kind=question.kind,
            answer=answer.text,
            f1=best_f1(answer.text, question.answers),
            em=exact_match(answer.text, question.answers),
            kl=kl_divergence(full.log_probs, answer.log_probs),
            top1=same_top1(full.log_probs, answer.log_probs),
            same=answer.text == full.text,
            seconds=answer.seconds,
            probe_seconds=probe_seconds,
            full_seconds=full.seconds,
            layers_read=layers_read,
        )

    records = [record(FULL_ARM, full, 0.0, 0)]
    with laboratory.layout(prompt) as layout:
        for selector, ratio in arms:
            answer, result = laboratory.blend(layout, SELECTORS[selector], ratio)
            before = round((result.passes - 1) * laboratory.layers)
            records.append(record((selector, ratio), answer, result.probe_seconds, before))
    return records
