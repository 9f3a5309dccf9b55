from __future__ import annotations

import math
from typing import Any

import pytest
from fastapi.responses import JSONResponse, Response

from kvweave.bench import BenchError
from kvweave.bench.arms import ARMS
from kvweave.bench.client import BenchClient
from kvweave.bench.knowledge import KnowledgeSpec, generate
from kvweave.bench.plan import Step, make_plan
from kvweave.bench.prepare import TokenScale, sample_questions, warm_up
from kvweave.bench.prompts import chunk_text
from kvweave.bench.runner import MAX_FAILURES_IN_A_ROW, RequestSettings, Run, run_plan
from kvweave.bench.summary import summarize

ALL = tuple(ARMS)
QUESTIONS = generate(KnowledgeSpec(questions=6, chunk_tokens=60))


def steps(arms: tuple[str, ...] = ALL, *, cold: bool = False, steady: int | None = 0) -> list[Step]:
    return make_plan(QUESTIONS, arms, cold=cold, steady=steady, seed=0)


def run(fake_server: Any, plan: list[Step], *, isolate: bool = True, **kwargs: Any) -> Run:
    with BenchClient(fake_server.url) as client:
        return run_plan(client, plan, RequestSettings(isolate), **kwargs)


def server_error(body: dict[str, Any]) -> Response:
    return JSONResponse({"error": {"message": "out of memory"}}, status_code=500)


def test_every_question_is_put_to_every_arm_with_the_same_prompt(fake_server: Any) -> None:
    result = run(fake_server, steps())
    assert result.stopped is None
    assert [list(step.arms) for step in result.steps] == [list(step.arms) for step in steps()]
    prompts = [str(body["messages"]) for body in fake_server.requests]
    for start in range(0, len(prompts), len(ALL)):
        assert len(set(prompts[start : start + len(ALL)])) == 1


def test_no_request_is_sent_while_chunks_are_computed(fake_server: Any) -> None:
    fake_server.background_seconds = 0.05
    run(fake_server, steps())
    assert set(fake_server.pending_at_request) == {0}


def test_arms_find_what_earlier_questions_brought_and_nothing_more(fake_server: Any) -> None:
    result = run(fake_server, steps())
    seen: set[str] = set()
    for step in result.steps:
        chunks = step.step.question.chunks
        old = [chunk.id in seen for chunk in chunks]
        for arm in ("reuse", "blend"):
            reuse = step.arms[arm].measurement.reuse  # type: ignore[union-attr]
            assert [entry["tier"] is not None for entry in reuse["chunks"]] == old
        seen.update(chunk.id for chunk in chunks)


def test_cold_requests_find_nothing_and_steady_ones_everything(fake_server: Any) -> None:
    result = run(fake_server, steps(cold=True, steady=None))
    missed = {
        phase: summarize(result.steps, phase)["blend"].hit_rates["missed"]  # type: ignore[index]
        for phase in ("cold", "first_pass", "steady")
    }
    assert missed["cold"] == 1
    assert 0.2 < missed["first_pass"] < 0.6
    assert missed["steady"] == 0


def test_answers_are_scored_against_the_answer_and_against_full(fake_server: Any) -> None:
    question = QUESTIONS[0]
    fake_server.answers = {question.question: f"The {question.answers[0]}."}
    first = run(fake_server, steps()).steps[0].arms
    for arm in ALL:
        assert first[arm].f1 == 1
        assert first[arm].exact is True
        assert first[arm].agrees is True
    assert first["full"].kl == first["prefix"].kl == 0
    assert first["reuse"].kl > first["blend"].kl > 0  # type: ignore[operator]
    assert all(result.top1 for result in first.values())


def test_logprobs_are_not_kept_after_scoring(fake_server: Any) -> None:
    result = run(fake_server, steps())
    measured = [arm.measurement for step in result.steps for arm in step.arms.values()]
    assert all(one is not None and one.logprobs is None for one in measured)


def test_without_full_nothing_is_compared_with_it(fake_server: Any) -> None:
    result = run(fake_server, steps(("blend",)))
    arm = result.steps[0].arms["blend"]
    assert arm.f1 is not None
    assert arm.kl is arm.agrees is arm.top1 is None
    assert summarize(result.steps, "first_pass")["blend"].speedup is None


def test_a_failed_request_is_noted_and_the_run_goes_on(fake_server: Any) -> None:
    def fail_once(body: dict[str, Any]) -> Response | None:
        return server_error(body) if len(fake_server.requests) == 3 else None

    fake_server.fail = fail_once
    result = run(fake_server, steps())
    errors = [arm.error for step in result.steps for arm in step.arms.values() if arm.error]
    assert result.stopped is None
    assert len(errors) == 1
    assert "out of memory" in errors[0]


def test_an_arm_that_always_fails_does_not_stop_the_others(fake_server: Any) -> None:
    fake_server.fail = lambda body: (
        server_error(body) if body["kvweave"]["mode"] == "reuse" else None
    )
    result = run(fake_server, steps())
    summary = summarize(result.steps, "first_pass")
    assert set(summary) == {"full", "prefix", "blend"}
    assert summary["blend"].answers == len(QUESTIONS)


def test_a_run_stops_when_nothing_works_any_more(fake_server: Any) -> None:
    fake_server.fail = server_error
    result = run(fake_server, steps())
    assert len(fake_server.requests) == MAX_FAILURES_IN_A_ROW
    assert result.stopped is not None
    assert "out of memory" in result.stopped


def test_ctrl_c_keeps_what_was_measured(fake_server: Any) -> None:
    answers = 0

    def interrupt(*_: Any) -> None:
        nonlocal answers
        answers += 1
        if answers == 6:
            raise KeyboardInterrupt

    result = run(fake_server, steps(), on_answer=interrupt)
    assert result.stopped == "interrupted"
    assert [len(step.arms) for step in result.steps] == [4, 2]
    assert result.steps[1].arms["prefix"].f1 is not None
    assert summarize(result.steps, "first_pass")["full"].answers == 1


def test_a_server_that_cannot_keep_arms_apart_is_found_out(fake_server: Any) -> None:
    fake_server.knows_store_chunks = False
    with BenchClient(fake_server.url) as client:
        settings = warm_up(client, ALL, sample_questions(QUESTIONS))
    assert not settings.isolate
    run(fake_server, steps(), isolate=settings.isolate)
    assert all("store_chunks" not in body["kvweave"] for body in fake_server.requests[-24:])


def test_a_server_that_can_keep_arms_apart_is_asked_to(fake_server: Any) -> None:
    with BenchClient(fake_server.url) as client:
        assert warm_up(client, ALL, sample_questions(QUESTIONS)).isolate


def test_warming_up_brings_no_chunk_that_is_measured(fake_server: Any) -> None:
    with BenchClient(fake_server.url) as client:
        warm_up(client, ALL, sample_questions(QUESTIONS))
    measured = {chunk_text(chunk) for question in QUESTIONS for chunk in question.chunks}
    assert fake_server.cached
    assert not fake_server.cached & measured


def test_an_arm_that_fails_while_warming_up_is_named(fake_server: Any) -> None:
    fake_server.fail = server_error
    with (
        BenchClient(fake_server.url) as client,
        pytest.raises(BenchError, match=r"the full arm can't be run: .*out of memory"),
    ):
        warm_up(client, ALL, sample_questions(QUESTIONS))


def test_token_lengths_are_learnt_from_the_server(fake_server: Any) -> None:
    with BenchClient(fake_server.url) as client:
        scale = TokenScale(client)
    spec = KnowledgeSpec(questions=4, chunk_tokens=120)
    for question in generate(spec, scale.count):
        words = sum(len(chunk.text.split()) for chunk in question.chunks)
        assert words == pytest.approx(8 * 120, rel=0.12)
    assert 0 <= scale.overhead < 40


def test_a_speedup_is_the_ratio_of_the_means(fake_server: Any) -> None:
    fake_server.seconds_per_token = 0.0002
    summary = summarize(run(fake_server, steps(("full", "blend"))).steps, "first_pass")
    gain = summary["blend"].speedup
    assert gain is not None
    ratio = summary["full"].ttft_ms.mean / summary["blend"].ttft_ms.mean
    assert math.isclose(gain.mean, ratio)
    assert 1 < gain.low <= gain.mean <= gain.high
