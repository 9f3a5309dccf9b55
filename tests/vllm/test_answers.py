"""What comes out of vLLM with kvweave in it: plain vLLM's answers, or the embedded engine's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.vllm.engine import Engine

from kvweave.config import Config
from kvweave.engine import ReuseOptions, SamplingParams
from kvweave.engine.build import engine_around
from kvweave.engine.loading import LoadedModel
from kvweave.metrics import Metrics
from kvweave.prompt import Prompt

PROMPTS = 20


@pytest.fixture
def prompts(engine: Engine) -> list[Prompt]:
    return [engine.prompt((3 * n, 3 * n + 1, 3 * n + 2)) for n in range(PROMPTS)]


def test_everything_recomputed_equals_plain_vllm_alone_and_batched(engine, prompts):
    plain = [engine.ask([prompt])[0].token_ids for prompt in prompts]
    engine.warm(prompts)

    alone = [engine.ask([prompt], 1.0)[0] for prompt in prompts]
    assert [answer.token_ids for answer in alone] == plain
    assert all(answer.report["matched"] for answer in alone)  # the KV did come from us

    together = engine.ask(prompts, 1.0)
    assert [answer.token_ids for answer in together] == plain
    assert all(answer.report["matched"] for answer in together)


def test_a_blended_answer_is_the_embedded_engines(
    engine: Engine, smollm2: LoadedModel, tmp_path: Path
):
    heads = smollm2.blendable.profile.heads
    assert heads and heads == engine.worker._model.profile.heads
    prompts = [engine.prompt(passages) for passages in ((1, 2, 3, 4), (9, 7, 8, 6))]
    engine.warm(prompts)
    here = engine.ask(prompts, 0.15)

    config = Config.model_validate(
        {
            "model": {"max_model_len": 1024},
            "kv_cache": {
                "ssd_cache_dir": str(tmp_path),
                "plan_loads": False,
            },
            "quality": {"gate": False},
        }
    )
    embedded = engine_around(smollm2, config, Metrics())
    embedded.start()
    try:
        for prompt, answer in zip(prompts, here, strict=True):
            text, report = asyncio.run(_answer(embedded, prompt))
            assert answer.report["selected"] == report.selected > 0
            shown = engine.llm.get_tokenizer().decode(answer.token_ids, skip_special_tokens=True)
            assert shown.startswith(text.rstrip()) and text.strip()
    finally:
        embedded.stop()


async def _answer(embedded, prompt):
    await embedded.warm(prompt.prefix_ids, [s.token_ids for s in prompt.segments if s.chunk_id])
    text = ""
    params = SamplingParams(max_tokens=16, temperature=0)
    async for delta in embedded.generate(prompt, params, ReuseOptions(recompute_ratio=0.15)):
        text += delta.text
    return text, delta.report


def test_a_blended_answer_differs_where_nothing_is_recomputed(engine):
    """The test above would be empty if the chosen set did not matter."""
    prompts = [engine.prompt((n, n + 1, n + 2, n + 3)) for n in (1, 11, 21, 31)]
    engine.warm(prompts)
    blended = [answer.token_ids for answer in engine.ask(prompts, 0.15)]
    reused = [answer.token_ids for answer in engine.ask(prompts, 0.0, mode="reuse")]
    assert blended != reused


def test_missing_chunks_do_not_change_the_answer_and_are_stored_behind_it(engine):
    prompt = engine.prompt((101, 102, 103))
    plain = engine.ask([prompt])[0].token_ids
    first = engine.ask([prompt], 0.15)[0]
    assert first.token_ids == plain
    assert [chunk["miss_reason"] for chunk in first.report["chunks"]] == ["new"] * 3

    engine.drain()
    again = engine.ask([engine.prompt((103, 101, 102))], 0.15)[0]
    assert [chunk["tier"] for chunk in again.report["chunks"]] == ["gpu"] * 3
    assert again.report["time_ms"]["compute"] > 0


def test_a_missing_chunk_between_found_ones_is_computed(engine):
    engine.warm([engine.prompt((1, 3, 4, 5))])
    prompt = engine.prompt((1, 2, 3, 4, 5))
    answer = engine.ask([prompt], 1.0)[0]
    assert [chunk["tier"] for chunk in answer.report["chunks"]] == ["gpu", None, *["gpu"] * 3]
    assert answer.token_ids == engine.ask([prompt])[0].token_ids


def test_a_prompt_of_which_too_little_is_stored_is_left_to_vllm(engine):
    engine.warm([engine.prompt((1,), system="Read.")])
    answer = engine.ask([engine.prompt((2, 3, 4, 5, 1), system="Read.")], 1.0)[0]
    assert answer.report["matched"] == 0


def test_marks_that_do_not_fit_are_told_and_harm_nothing(engine):
    prompt, other = engine.prompt((1, 2)), engine.prompt((1, 2, 3))
    from vllm import SamplingParams

    from kvweave.integrations.vllm.marks import PromptMarks

    extra = {"kv_transfer_params": PromptMarks.of(other).to_params()}
    (output,) = engine.llm.generate(
        [{"prompt_token_ids": list(prompt.token_ids)}],
        [SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, extra_args=extra)],
        use_tqdm=False,
    )
    assert "segments cover" in output.kv_transfer_params["kvweave"]["error"]
    assert tuple(output.outputs[0].token_ids) == engine.ask([prompt])[0].token_ids


def test_a_request_for_prompt_logprobs_is_told_why_nothing_is_reused(engine):
    from vllm import SamplingParams

    from kvweave.integrations.vllm.marks import PromptMarks

    prompt = engine.prompt((1, 2))
    engine.warm([prompt])
    extra = {"kv_transfer_params": PromptMarks.of(prompt).to_params()}
    (output,) = engine.llm.generate(
        [{"prompt_token_ids": list(prompt.token_ids)}],
        [SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1, extra_args=extra)],
        use_tqdm=False,
    )
    assert "prompt_logprobs" in output.kv_transfer_params["kvweave"]["error"]
    assert len(output.prompt_logprobs) == len(prompt.token_ids)
