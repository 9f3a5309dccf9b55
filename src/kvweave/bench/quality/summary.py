"""From single answers to figures with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvweave.bench.quality.records import FULL, FULL_ARM, Record

RESAMPLES = 2000
INTERVAL = 0.95
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Figure:
    """A value with its 95 % bootstrap interval over the questions."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ArmQuality:
    """One selector at one ratio on one kind of prompts.

    Attributes:
        prompts: chunk length or file, without the seed.
        kept_f1: F1 over the full prefill's on the same questions.
        kl: nats; top1, same: shares that agree with the full prefill.
        probe_share, ttft_share: the selector's own time, and that to the first token, over a full
            prefill's of the same prompt; medians.
        kinds: F1 for each kind of question.
    """

    prompts: str
    selector: str
    ratio: float
    questions: int
    em: Figure
    f1: Figure
    kept_f1: Figure
    kl: Figure
    top1: Figure
    same: Figure
    probe_ms: float
    probe_share: float
    ttft_share: float
    layers_read: int
    kinds: dict[str, float]


def summarize(records: Sequence[Record]) -> list[ArmQuality]:
    """All arms of all prompts, the seeds of one chunk length together, full prefill first."""
    groups: dict[tuple[str, tuple[str, float]], dict[tuple[str, int], Record]] = {}
    for record in records:
        group = groups.setdefault((kind_of_prompts(record.prompts), record.arm), {})
        group[record.question] = record
    rows = []
    for (prompts, arm), asked in groups.items():
        full = groups.get((prompts, FULL_ARM), {})
        pairs = [(asked[place], full[place]) for place in asked if place in full]
        if pairs:
            rows.append(_summary(prompts, arm, pairs))
    return sorted(
        rows, key=lambda row: (row.prompts, row.selector != FULL, row.selector, row.ratio)
    )


def kind_of_prompts(prompts: str) -> str:
    """The name of a prompt set without its seed."""
    return prompts.partition("/")[0]


def _summary(
    prompts: str, arm: tuple[str, float], pairs: Sequence[tuple[Record, Record]]
) -> ArmQuality:
    rng = np.random.default_rng(0)
    picks = rng.integers(len(pairs), size=(RESAMPLES, len(pairs)))

    def column(value: Callable[[Record], float], of: int = 0) -> Floats:
        return np.array([value(pair[of]) for pair in pairs], dtype=np.float64)

    def mean(value: Callable[[Record], float]) -> Figure:
        values = column(value)
        return _figure(float(values.mean()), values[picks].mean(axis=1))

    ours, theirs = column(lambda r: r.f1), column(lambda r: r.f1, of=1)
    below = theirs[picks].sum(axis=1)
    kept = np.divide(
        ours[picks].sum(axis=1), below, out=np.full(RESAMPLES, np.nan), where=below > 0
    )
    kinds = sorted({record.kind for record, _ in pairs if record.kind})
    return ArmQuality(
        prompts=prompts,
        selector=arm[0],
        ratio=arm[1],
        questions=len(pairs),
        em=mean(lambda r: r.em),
        f1=mean(lambda r: r.f1),
        kept_f1=_figure(float(ours.sum() / theirs.sum()) if theirs.sum() else np.nan, kept),
        kl=mean(lambda r: r.kl),
        top1=mean(lambda r: r.top1),
        same=mean(lambda r: r.same),
        probe_ms=float(np.median(column(lambda r: r.probe_seconds))) * 1e3,
        probe_share=float(np.median(column(lambda r: r.probe_seconds / r.full_seconds))),
        ttft_share=float(np.median(column(lambda r: r.seconds / r.full_seconds))),
        layers_read=round(float(np.median(column(lambda r: r.layers_read)))),
        kinds={
            kind: float(np.mean([record.f1 for record, _ in pairs if record.kind == kind]))
            for kind in kinds
        },
    )


def _figure(value: float, resampled: Floats) -> Figure:
    known = resampled[~np.isnan(resampled)]
    if not len(known):
        return Figure(value, np.nan, np.nan)
    tail = 100 * (1 - INTERVAL) / 2
    low, high = np.percentile(known, [tail, 100 - tail])
    return Figure(value, float(low), float(high))
