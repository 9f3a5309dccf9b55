"""kvweave beside what vLLM does itself: prefix cache, batching, preemption, failures, aborts."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from tests.vllm.engine import Engine

from kvweave.integrations.vllm.marks import PromptMarks
from kvweave.prompt import Segment


def system_tokens(prompt) -> int:
    return len(prompt.prefix_ids)


def test_pages_of_a_blended_prompt_never_serve_other_requests(engine: Engine):
    prompt = engine.prompt((1, 2, 3, 4, 5))
    right = engine.ask([prompt])[0].token_ids
    engine.warm([prompt])
    engine.llm.reset_prefix_cache()

    blended = engine.ask([prompt], 0.0, mode="reuse", shared=True)[0]
    assert blended.token_ids != right  # so its pages would do harm

    plain = engine.ask([prompt], shared=True)[0]
    assert plain.cached_tokens <= system_tokens(prompt)
    assert plain.token_ids == right


def test_blended_pages_that_generated_tokens_complete_are_not_shared_either(engine: Engine):
    prompt = engine.prompt((1, 2, 3, 4))
    engine.warm([prompt])
    engine.llm.reset_prefix_cache()
    answer = engine.ask([prompt], 0.0, mode="reuse", shared=True, tokens=140)[0]

    longer = replace(prompt, segments=(*prompt.segments, Segment("fresh", answer.token_ids)))
    assert engine.ask([longer], shared=True)[0].cached_tokens <= system_tokens(prompt)


def test_the_system_prompt_of_a_blended_request_hits_the_prefix_cache(engine: Engine):
    engine.warm([engine.prompt((1, 2, 3))])
    engine.llm.reset_prefix_cache()
    engine.ask([engine.prompt((2, 1, 3))], 0.15, shared=True)
    other = engine.prompt((7, 8), question="Who?")
    cached = engine.ask([other], shared=True)[0].cached_tokens
    assert 0 < cached <= system_tokens(other)


@pytest.fixture
def fills_per_step(engine: Engine, monkeypatch) -> list[int]:
    """How many prompts are filled in each step from now on."""
    counts: list[int] = []
    orders = engine.scheduler.orders

    def counted(*args):
        step = orders(*args)
        counts.append(len(step.fills))
        return step

    monkeypatch.setattr(engine.scheduler, "orders", counted)
    return counts


def test_prompts_are_filled_together_within_a_budget_per_step(
    engine: Engine, monkeypatch, fills_per_step
):
    prompts = [engine.prompt((n, n + 1, n + 2)) for n in (0, 10, 20, 30)]
    plain = [answer.token_ids for answer in engine.ask(prompts)]
    engine.warm(prompts)

    fills_per_step.clear()
    assert [answer.token_ids for answer in engine.ask(prompts, 1.0)] == plain
    assert max(fills_per_step) > 1

    fills_per_step.clear()
    monkeypatch.setattr(engine.scheduler, "_step_rows", 1)
    assert [answer.token_ids for answer in engine.ask(prompts, 1.0)] == plain
    assert max(fills_per_step) == 1
    assert sum(fills_per_step) == len(prompts)


def test_blended_and_plain_requests_run_side_by_side(engine: Engine):
    blended = [engine.prompt((n, n + 1, n + 2)) for n in (0, 10)]
    others = [engine.prompt((n, n + 1)) for n in (40, 50)]
    plain = [answer.token_ids for answer in engine.ask([*blended, *others])]
    engine.warm(blended)
    # The others carry chunks that are not stored: vLLM computes them in the same steps.
    answers = engine.ask([*blended, *others], 1.0)
    assert [answer.token_ids for answer in answers] == plain
    assert [bool(answer.report["matched"]) for answer in answers] == [True, True, True, True]


def test_a_request_that_loses_its_pages_is_filled_once_more(
    engine: Engine, monkeypatch, fills_per_step
):
    prompts = [engine.prompt((n, n + 1, n + 2, n + 3)) for n in (0, 10, 20)]
    plain = [engine.ask([prompt], tokens=140)[0].token_ids for prompt in prompts]
    engine.warm(prompts)
    fills_per_step.clear()
    preempted = 0
    preempt = engine.core.scheduler._preempt_request

    def counted(request, *args, **kwargs):
        nonlocal preempted
        preempted += 1
        preempt(request, *args, **kwargs)
        # As if others had taken all of its pages: it would find some of them again.
        request.block_hashes[:] = [os.urandom(32) for _ in request.block_hashes]

    monkeypatch.setattr(engine.core.scheduler, "_preempt_request", counted)
    with _few_pages(engine, 13):
        answers = engine.ask(prompts, 1.0, tokens=140)
    assert preempted
    assert [answer.token_ids for answer in answers] == plain
    assert sum(fills_per_step) > len(prompts)


class _few_pages:
    """Takes pages away from vLLM's pool until only `left` are free."""

    def __init__(self, engine: Engine, left: int) -> None:
        self._pool = engine.core.scheduler.kv_cache_manager.block_pool
        self._left = left

    def __enter__(self) -> None:
        self._taken = self._pool.get_new_blocks(self._pool.get_num_free_blocks() - self._left)

    def __exit__(self, *error: object) -> None:
        self._pool.free_blocks(self._taken)


def test_a_fill_that_fails_costs_time_and_nothing_else(engine: Engine, monkeypatch):
    prompt, other = engine.prompt((1, 2, 3)), engine.prompt((4, 5, 6))
    plain = [answer.token_ids for answer in engine.ask([prompt, other])]
    engine.warm([prompt, other])
    blend, failures = engine.worker._reuse.blend, []

    def failing(request, *args):
        if request.prompt.token_ids == prompt.token_ids:
            failures.append(request)
            raise RuntimeError("planted")
        return blend(request, *args)

    monkeypatch.setattr(engine.worker._reuse, "blend", failing)
    answers = engine.ask([prompt, other], 1.0)
    assert len(failures) == 1
    assert [answer.token_ids for answer in answers] == plain
    assert not engine.worker._asked


def test_a_chunk_that_cannot_be_read_is_a_miss(engine: Engine):
    prompt = engine.prompt((1, 2, 3))
    plain = engine.ask([prompt])[0].token_ids
    engine.warm([prompt])
    memory, disk = engine.worker._cache._tiers
    for segment in prompt.segments:
        if segment.role == "chunk":
            disk.settle(_key(engine, prompt, segment))
    memory.clear()
    chunk = next(segment for segment in prompt.segments if segment.role == "chunk")
    key = _key(engine, prompt, chunk)
    spoilt = next(path for path in engine.folder.rglob("*.safetensors") if key in path.name)
    content = bytearray(spoilt.read_bytes())
    content[-100:] = bytes(100)
    spoilt.write_bytes(content)

    answer = engine.ask([prompt], 1.0)[0]
    assert answer.token_ids == plain
    assert [chunk["miss_reason"] for chunk in answer.report["chunks"]].count("unreadable") == 1


def _key(engine: Engine, prompt, segment) -> str:
    return engine.worker._reuse.job("", prompt.prefix_ids, segment.token_ids).ref.key


@pytest.mark.parametrize("steps", [0, 1, 2, 4])
def test_an_aborted_request_leaves_nothing_behind(engine: Engine, steps: int):
    from vllm import SamplingParams

    prompt = engine.prompt((1, 2, 3))
    engine.warm([prompt])
    extra = {"kv_transfer_params": PromptMarks.of(prompt).to_params()}
    params = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True, extra_args=extra)
    llm_engine = engine.llm.llm_engine
    llm_engine.add_request(f"aborted-{steps}", {"prompt_token_ids": list(prompt.token_ids)}, params)
    for _ in range(steps):
        llm_engine.step()
    # Whatever name the engine has given it inside.
    engine.core.abort_requests(list(engine.core.scheduler.requests))
    llm_engine.abort_request([f"aborted-{steps}"])
    engine.drain()
    engine.ask([prompt], 0.15)  # what is done is accounted for in the next steps
    engine.drain()

    assert not engine.scheduler._tracked
    assert not engine.worker._asked
    assert not engine.worker._cache._tiers[0]._pins
