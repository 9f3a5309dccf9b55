"""From single answers to figures: per phase, per arm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvweave.bench.arms import ARMS
from kvweave.bench.client import Measurement
from kvweave.bench.plan import Phase
from kvweave.bench.runner import ArmResult, StepResult

TIERS = ("gpu", "cpu", "ssd")
RESAMPLES = 10_000
INTERVAL = 0.95


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of some times, in milliseconds."""

    mean: float
    p50: float
    p95: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        values = np.asarray(seconds) * 1e3
        p50, p95 = np.percentile(values, [50, 95])
        return cls(float(values.mean()), float(p50), float(p95))


@dataclass(frozen=True, slots=True)
class Speedup:
    """Mean TTFT of `full` over that of an arm, with its bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """What one arm did in one phase. Means over its answers; None where nothing can be said.

    Attributes:
        answers: how many there are.
        errors: requests that brought none.
        speedup: against `full`, over the questions that both answered.
        em, contains, agreement, top1: shares of the answers, 0..1.
        kl: nats.
        cached_share: share of the prompt tokens whose KV came from a cache and was kept.
        selected_share, forced_share: shares of the prompt tokens that were computed, by reason.
        hit_rates: shares of the chunk tokens by the tier they lay in, and `missed`; adds up to 1.
        kinds: F1, agreement and KL for each kind of question.
    """

    answers: int
    errors: int
    ttft_ms: Spread
    total_ms: Spread
    speedup: Speedup | None
    f1: float
    em: float
    contains: float
    agreement: float | None
    agreement_f1: float | None
    kl: float | None
    top1: float | None
    cached_share: float
    forced_share: float | None
    selected_share: float | None
    hit_rates: dict[str, float] | None
    kinds: dict[str, dict[str, float | None]]


def summarize(results: Iterable[StepResult], phase: Phase) -> dict[str, ArmSummary]:
    """The summary of each arm that answered something in `phase`, in the order of `ARMS`."""
    steps = [result for result in results if result.phase == phase]
    summaries = {}
    for name in ARMS:
        pairs = [(step, step.arms[name]) for step in steps if name in step.arms]
        answered = [(step, arm) for step, arm in pairs if arm.measurement is not None]
        if answered:
            summaries[name] = _summarize_arm(name, answered, len(pairs) - len(answered))
    return summaries


def _summarize_arm(
    name: str, answered: Sequence[tuple[StepResult, ArmResult]], errors: int
) -> ArmSummary:
    arms = [arm for _, arm in answered]
    measured = [arm.measurement for arm in arms if arm.measurement is not None]
    prompt_tokens = sum(m.prompt_tokens for m in measured)
    kinds: dict[str, list[ArmResult]] = {}
    for step, arm in answered:
        if step.step.question.kind:
            kinds.setdefault(step.step.question.kind, []).append(arm)
    return ArmSummary(
        answers=len(measured),
        errors=errors,
        ttft_ms=Spread.of([m.ttft for m in measured]),
        total_ms=Spread.of([m.total for m in measured]),
        speedup=None if name == "full" else _speedup(answered),
        f1=_mean_of(arms, "f1") or 0.0,
        em=_mean_of(arms, "exact") or 0.0,
        contains=_mean_of(arms, "contains") or 0.0,
        agreement=_mean_of(arms, "agrees"),
        agreement_f1=_mean_of(arms, "agreement_f1"),
        kl=_mean_of(arms, "kl"),
        top1=_mean_of(arms, "top1"),
        cached_share=sum(m.cached_tokens for m in measured) / prompt_tokens,
        forced_share=_reported_share(measured, "forced"),
        selected_share=_reported_share(measured, "selected"),
        hit_rates=hit_rates(measured),
        kinds={
            kind: {score: _mean_of(group, score) for score in ("f1", "contains", "agrees", "kl")}
            for kind, group in sorted(kinds.items())
        },
    )


def _mean_of(arms: Iterable[ArmResult], score: str) -> float | None:
    values = [value for arm in arms if (value := getattr(arm, score)) is not None]
    return float(np.mean(values)) if values else None


def _reported_share(measured: Sequence[Measurement], key: str) -> float | None:
    """Mean share of the prompt's tokens that `usage.kvweave` reports under `key`."""
    reported = [m for m in measured if key in m.reuse]
    tokens = sum(m.prompt_tokens for m in reported)
    return sum(m.reuse[key] for m in reported) / tokens if tokens else None


def hit_rates(measured: Iterable[Measurement]) -> dict[str, float] | None:
    """Where the chunk tokens lay: shares by tier, and `missed`. None if no chunk was looked up."""
    counts = dict.fromkeys((*TIERS, "missed"), 0)
    for measurement in measured:
        for chunk in measurement.reuse.get("chunks") or ():
            counts[chunk.get("tier") or "missed"] += chunk["tokens"]
    total = sum(counts.values())
    return {name: tokens / total for name, tokens in counts.items()} if total else None


def _speedup(answered: Sequence[tuple[StepResult, ArmResult]]) -> Speedup | None:
    pairs = [
        (full.measurement.ttft, arm.measurement.ttft)
        for step, arm in answered
        if (full := step.arms.get("full")) and full.measurement and arm.measurement
    ]
    if not pairs:
        return None
    return paired_speedup([full for full, _ in pairs], [own for _, own in pairs])


def paired_speedup(full: Sequence[float], arm: Sequence[float], seed: int = 0) -> Speedup:
    """Mean of `full` over mean of `arm`, and the percentile bootstrap interval over pairs."""
    times = np.stack([np.asarray(full, float), np.asarray(arm, float)])
    count = times.shape[1]
    picks = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    means = times[:, picks].mean(axis=2)
    tail = (1 - INTERVAL) / 2 * 100
    low, high = np.percentile(means[0] / means[1], [tail, 100 - tail])
    return Speedup(float(times[0].mean() / times[1].mean()), float(low), float(high))


def finite(value: Any) -> Any:
    """`value` with every number that JSON can't spell replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
