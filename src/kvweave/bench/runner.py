"""Runs the steps of a plan against a server, and scores the answers as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvweave.bench.client import BenchClient, Measurement, RequestFailed
from kvweave.bench.errors import BenchError
from kvweave.bench.plan import Phase, Step
from kvweave.bench.prompts import chat_messages
from kvweave.bench.questions import Question
from kvweave.bench.scoring import (
    best_f1,
    contains_answer,
    exact_match,
    kl_divergence,
    normalize,
    same_top1,
    token_f1,
)

MAX_ANSWER_TOKENS = 24
MAX_FAILURES_IN_A_ROW = 4


@dataclass(slots=True)
class ArmResult:
    """What one arm made of one question; scores are None where there is nothing to compare with.

    Attributes:
        agrees: whether the answer's text equals the full prefill's, after normalisation.
        agreement_f1: token F1 of the answer against the full prefill's.
        kl: KL(full || arm) of the first answer token, in nats.
        top1: whether its likeliest token is the full prefill's.
        error: why there is no answer; then nothing else is set.
    """

    measurement: Measurement | None = None
    error: str | None = None
    f1: float | None = None
    exact: bool | None = None
    contains: bool | None = None
    agrees: bool | None = None
    agreement_f1: float | None = None
    kl: float | None = None
    top1: bool | None = None


@dataclass(slots=True)
class StepResult:
    """A step with the result of each arm that got its turn."""

    step: Step
    arms: dict[str, ArmResult] = field(default_factory=dict)

    @property
    def phase(self) -> Phase:
        return self.step.phase


@dataclass(slots=True)
class Run:
    """All results of a run, in the order of the plan; `stopped` says why it isn't complete."""

    steps: list[StepResult] = field(default_factory=list)
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """What all measured requests have in common.

    Attributes:
        isolate: whether the server takes `store_chunks`, which keeps what one arm brings into the
            cache from the other arms of the same question.
    """

    isolate: bool
    max_tokens: int = MAX_ANSWER_TOKENS

    def options(self, arm: str, *, store: bool) -> dict[str, Any]:
        """The `kvweave` object of a request's body."""
        options: dict[str, Any] = {"mode": arm, "first_token_logprobs": True}
        if self.isolate:
            options["store_chunks"] = store
        return options


OnAnswer = Callable[[StepResult, str], None]


def run_plan(
    client: BenchClient,
    plan: Sequence[Step],
    settings: RequestSettings,
    on_answer: OnAnswer = lambda result, arm: None,
) -> Run:
    """Ask every question of the plan in every arm.

    Before each request the server's background work is waited for. A request that fails is noted
    and the run goes on; it ends early, with what there is, on Ctrl-C and when nothing works any
    more. `on_answer` is called after each answer.
    """
    run = Run()
    failures = 0
    try:
        for step in plan:
            result = StepResult(step)
            run.steps.append(result)
            try:
                for arm in step.arms:
                    outcome = _ask(client, step, arm, settings)
                    result.arms[arm] = outcome
                    failures = failures + 1 if outcome.error else 0
                    if failures == MAX_FAILURES_IN_A_ROW:
                        raise BenchError(f"{failures} requests in a row failed: {outcome.error}")
                    on_answer(result, arm)
            finally:
                _score(result)
    except KeyboardInterrupt:
        run.stopped = "interrupted"
    except BenchError as error:
        run.stopped = str(error)
    return run


def _ask(client: BenchClient, step: Step, arm: str, settings: RequestSettings) -> ArmResult:
    try:
        client.wait_until_idle()
        options = settings.options(arm, store=arm == step.storing)
        return ArmResult(client.ask(chat_messages(step.question), options, settings.max_tokens))
    except RequestFailed as error:
        return ArmResult(error=str(error))


def _score(result: StepResult) -> None:
    """Score the arms of a step, and drop the log-probabilities, which only this needs."""
    full = result.arms.get("full", ArmResult()).measurement
    for arm in result.arms.values():
        if arm.measurement is not None:
            _score_arm(arm, arm.measurement, full, result.step.question)
    for arm in result.arms.values():
        if arm.measurement is not None:
            arm.measurement = arm.measurement.without_logprobs()


def _score_arm(
    arm: ArmResult, measured: Measurement, full: Measurement | None, question: Question
) -> None:
    arm.f1 = best_f1(measured.answer, question.answers)
    arm.exact = exact_match(measured.answer, question.answers)
    arm.contains = contains_answer(measured.answer, question.answers)
    if full is None:
        return
    arm.agrees = normalize(measured.answer) == normalize(full.answer)
    arm.agreement_f1 = token_f1(measured.answer, full.answer)
    if full.logprobs is not None and measured.logprobs is not None:
        arm.kl = kl_divergence(full.logprobs, measured.logprobs)
        arm.top1 = same_top1(full.logprobs, measured.logprobs)
