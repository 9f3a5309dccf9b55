"""The embedded engine: equal to `generate` without reuse, and sound with it."""

from __future__ import annotations

import asyncio
import contextlib

import numpy as np
import pytest
import torch

from kvweave.engine import (
    EngineOverloaded,
    EngineStopped,
    Progress,
    PromptTooLong,
    ReuseOptions,
    SamplingParams,
    UnknownSelector,
)
from kvweave.prompt import Prompt, Segment

FULL = ReuseOptions(mode="full")
GREEDY = SamplingParams(max_tokens=12, temperature=0)


def plain(token_ids):
    return Prompt((Segment("fresh", tuple(token_ids)),), ())


@torch.no_grad()
def generated(loaded, prompt, max_tokens=12):
    """What `transformers`' own generate makes of the prompt, greedily."""
    ids = torch.tensor([prompt.token_ids])
    out = loaded.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_tokens,
        do_sample=False,
        eos_token_id=sorted(loaded.eos_token_ids),
        pad_token_id=0,
    )
    return loaded.tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)


async def test_without_blending_smollm2_answers_as_generate_does(make_engine, smollm2, tools):
    engine = make_engine(smollm2)
    chat = [{"role": "user", "content": "Name three colours of the rainbow."}]
    text = smollm2.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    prompt = plain(smollm2.tokenizer(text, add_special_tokens=False).input_ids)
    params = SamplingParams(max_tokens=20, temperature=0)
    text, last = await tools.answer(engine, prompt, params, FULL)
    assert text == generated(smollm2, prompt, 20)
    assert last.report.forced == len(prompt)


async def test_a_cold_prompt_is_answered_as_in_full_and_its_chunks_are_stored(
    make_engine, tiny, tools
):
    engine = make_engine()
    text, last = await tools.answer(engine, tools.rag_prompt())
    assert text == generated(tiny, tools.rag_prompt())
    assert [c.miss_reason for c in last.report.chunks] == ["new"] * 3
    assert last.report.cached_tokens == 0
    await tools.settle(engine)
    _, last = await tools.answer(engine, tools.rag_prompt((2, 0, 1)))
    assert [c.tier for c in last.report.chunks] == ["gpu"] * 3
    assert last.report.matched == 10 + 3 * 60
    assert last.report.selected == round(0.15 * 180)
    assert last.report.cached_tokens == 190 - 27
    assert last.report.loaded_tokens == {"gpu": 190, "cpu": 0, "ssd": 0}


async def test_holes_do_not_stop_the_chunks_around_them_from_hitting(make_engine, tools):
    engine = make_engine()
    await engine.warm(tools.ids(10, 99), [tools.ids(60, 0), tools.ids(60, 2)])
    _, last = await tools.answer(engine, tools.rag_prompt((0, 1, 2)))
    assert [c.tier for c in last.report.chunks] == ["gpu", None, "gpu"]
    assert last.report.forced == 60 + 8


async def test_warm_says_how_many_were_new(make_engine, tools):
    engine = make_engine()
    chunks = [tools.ids(60, i) for i in range(3)]
    assert await engine.warm(tools.ids(10, 99), chunks) == 3
    assert await engine.warm(tools.ids(10, 99), [*chunks, tools.ids(60, 7)]) == 1
    assert await engine.warm((), [tools.ids(60, 0)]) == 1  # after no prefix it is another chunk


async def test_a_restart_finds_the_chunks_on_the_ssd_and_refills_upwards(make_engine, tools):
    first = make_engine()
    await first.warm(tools.ids(10, 99), [tools.ids(60, i) for i in range(3)])
    first.stop()
    engine = make_engine()
    text, last = await tools.answer(engine, tools.rag_prompt((2, 1, 0)))
    assert [c.tier for c in last.report.chunks] == ["ssd"] * 3
    await tools.settle(engine)
    again, last = await tools.answer(engine, tools.rag_prompt((2, 1, 0)))
    assert [c.tier for c in last.report.chunks] == ["gpu"] * 3
    assert again == text


@pytest.mark.parametrize("overlap", [True, False])
async def test_a_chunk_that_breaks_on_the_disk_is_computed_in_the_same_request(
    make_engine, tiny, tools, tmp_path, overlap
):
    first = make_engine()
    await first.warm(tools.ids(10, 99), [tools.ids(60, i) for i in range(3)])
    first.stop()
    for path in (tmp_path / "kv").glob("??/*.safetensors"):
        content = bytearray(path.read_bytes())
        content[-260] ^= 0xFF  # in the last layer: found out when the pass is nearly done
        path.write_bytes(content)
    engine = make_engine(pipeline_overlap=overlap)
    text, last = await tools.answer(engine, tools.rag_prompt())
    assert text == generated(tiny, tools.rag_prompt())
    assert [c.miss_reason for c in last.report.chunks] == ["unreadable"] * 3
    await tools.settle(engine)
    _, last = await tools.answer(engine, tools.rag_prompt())
    assert [c.tier for c in last.report.chunks] == ["gpu"] * 3


async def test_sixteen_requests_at_once_answer_as_each_does_alone(make_engine, smollm2, tools):
    """Blending and not, chunks shared, in one batch."""
    engine = make_engine(smollm2)
    await engine.warm(tools.ids(10, 99), [tools.ids(60, i) for i in range(4)])
    orders = [(0, 1, 2), (2, 1, 0), (3, 0, 1), (1, 3)]
    asked = [
        (tools.rag_prompt(orders[i % 4], question=100 + i), ReuseOptions(mode=mode))
        for i, mode in enumerate(["blend", "full", "prefix", "reuse"] * 4)
    ]
    params = SamplingParams(max_tokens=6, temperature=0)
    alone = [await tools.answer(engine, prompt, params, reuse) for prompt, reuse in asked]
    together = await asyncio.gather(
        *(tools.answer(engine, prompt, params, reuse) for prompt, reuse in asked)
    )
    assert [text for text, _ in together] == [text for text, _ in alone]
    assert sum(last.report.selected for _, last in together) > 0


async def test_blended_pages_never_serve_another_request(make_engine, tiny, tools):
    engine = make_engine()
    prompt = tools.rag_prompt((2, 0, 1), tokens=100)
    await engine.warm(prompt.prefix_ids, [s.token_ids for s in prompt.segments[1:4]])
    await tools.answer(engine, prompt)
    text, last = await tools.answer(engine, prompt, reuse=ReuseOptions(mode="prefix"))
    assert last.report.cached_tokens == 0
    assert text == generated(tiny, prompt)


async def test_the_exact_prefix_cache_serves_prompts_in_the_same_order(make_engine, tools):
    engine, prefix = make_engine(), ReuseOptions(mode="prefix")
    first, _ = await tools.answer(engine, tools.rag_prompt((0, 1, 2)), reuse=prefix)
    again, last = await tools.answer(engine, tools.rag_prompt((0, 1, 2)), reuse=prefix)
    assert again == first
    assert last.report.cached_tokens == (len(tools.rag_prompt()) - 1) // 32 * 32
    _, last = await tools.answer(engine, tools.rag_prompt((1, 0, 2)), reuse=prefix)
    assert last.report.cached_tokens == 0


async def test_full_mode_neither_reads_nor_feeds_any_cache(make_engine, tools):
    engine = make_engine()
    await tools.answer(engine, tools.rag_prompt(), reuse=FULL)
    assert engine.pending_chunks() == 0
    _, last = await tools.answer(engine, tools.rag_prompt(), reuse=ReuseOptions(mode="prefix"))
    assert last.report.cached_tokens == 0


async def test_tenants_do_not_share_chunks(make_engine, tools):
    engine = make_engine()
    await tools.answer(engine, tools.rag_prompt(), tenant="one")
    await tools.settle(engine)
    _, last = await tools.answer(engine, tools.rag_prompt(), tenant="other")
    assert [c.tier for c in last.report.chunks] == [None] * 3
    _, last = await tools.answer(engine, tools.rag_prompt(), tenant="one")
    assert [c.tier for c in last.report.chunks] == ["gpu"] * 3


async def test_tenants_do_not_share_exact_prefix_pages(make_engine, tools):
    engine, prefix = make_engine(), ReuseOptions(mode="prefix")
    shared = (len(tools.rag_prompt()) - 1) // 32 * 32
    texts = []
    for tenant, cached in [("one", 0), ("other", 0), ("one", shared), ("other", shared), ("", 0)]:
        text, last = await tools.answer(engine, tools.rag_prompt(), reuse=prefix, tenant=tenant)
        assert last.report.cached_tokens == cached, tenant
        texts.append(text)
    assert len(set(texts)) == 1


async def test_tenants_do_not_learn_of_each_others_texts_from_the_reason_of_a_miss(
    make_engine, tools
):
    engine = make_engine()
    await tools.answer(engine, tools.rag_prompt(), tenant="one")
    await tools.settle(engine)
    prompt = tools.rag_prompt()
    other = Prompt((Segment("system", tools.ids(10, 98)), *prompt.segments[1:]), tools.ids(10, 98))
    _, last = await tools.answer(engine, other, tenant="other")
    assert {c.miss_reason for c in last.report.chunks} == {"new"}


async def test_another_system_prompt_is_a_miss_with_its_reason(make_engine, tools):
    engine = make_engine()
    await tools.answer(engine, tools.rag_prompt())
    await tools.settle(engine)
    prompt = tools.rag_prompt()
    other = Prompt((Segment("system", tools.ids(10, 98)), *prompt.segments[1:]), tools.ids(10, 98))
    _, last = await tools.answer(engine, other)
    assert {c.miss_reason for c in last.report.chunks} == {"other_system_prompt"}


async def test_first_token_logprobs_are_those_of_the_model(make_engine, tiny, tools):
    prompt = tools.rag_prompt()
    options = ReuseOptions(mode="full", first_token_logprobs=True)
    _, last = await tools.answer(make_engine(), prompt, reuse=options)
    found = np.frombuffer(last.report.first_token_logprobs, "<f4")
    with torch.no_grad():
        logits = tiny.model(torch.tensor([prompt.token_ids])).logits[0, -1]
    np.testing.assert_allclose(found, logits.log_softmax(-1).numpy(), atol=1e-3)


async def test_a_seed_makes_sampling_repeatable_whatever_else_runs(make_engine, tools):
    engine = make_engine()
    params = SamplingParams(max_tokens=10, temperature=1.5, top_p=0.95, seed=7)
    alone, _ = await tools.answer(engine, plain(tools.ids(30, 1)), params)
    others = [tools.answer(engine, plain(tools.ids(20 + i, 2 + i))) for i in range(3)]
    (crowded, _), *_ = await asyncio.gather(
        tools.answer(engine, plain(tools.ids(30, 1)), params), *others
    )
    reseeded = SamplingParams(max_tokens=10, temperature=1.5, top_p=0.95, seed=8)
    different, _ = await tools.answer(engine, plain(tools.ids(30, 1)), reseeded)
    assert alone == crowded != different


async def test_a_vanishing_top_p_is_greedy(make_engine, tools):
    engine, prompt = make_engine(), plain(tools.ids(30, 1))
    params = SamplingParams(max_tokens=8, temperature=2.0, top_p=1e-6, seed=1)
    greedy, _ = await tools.answer(engine, prompt, SamplingParams(max_tokens=8, temperature=0))
    assert (await tools.answer(engine, prompt, params))[0] == greedy


async def test_draws_follow_the_distribution(make_engine, tiny, tools):
    """The share of the most likely token over many seeds is its probability."""
    engine, prompt = make_engine(), plain(tools.ids(5, 3))
    with torch.no_grad():
        logits = tiny.model(torch.tensor([prompt.token_ids])).logits[0, -1]
    best = int(logits.argmax())
    share = {t: float((logits / t).softmax(-1)[best]) for t in np.geomspace(0.01, 1, 40)}
    temperature, expected = min(share.items(), key=lambda item: abs(item[1] - 0.5))
    assert 0.2 < expected < 0.8
    hits = 0
    for batch in range(4):
        drawn = await asyncio.gather(
            *(
                tools.answer(
                    engine,
                    prompt,
                    SamplingParams(max_tokens=1, temperature=temperature, seed=100 * batch + i),
                )
                for i in range(50)
            )
        )
        hits += sum(text == tiny.tokenizer.decode([best]) for text, _ in drawn)
    assert abs(hits / 200 - expected) < 4 * (expected * (1 - expected) / 200) ** 0.5


async def test_generation_stops_at_a_stop_string_without_showing_it(make_engine, tools):
    engine, prompt = make_engine(), plain(tools.ids(30, 1))
    whole, _ = await tools.answer(engine, prompt)
    stop = whole[len(whole) // 2 :][:3]
    params = SamplingParams(max_tokens=12, temperature=0, stop=(stop, "never"))
    text, last = await tools.answer(engine, prompt, params)
    assert text == whole[: whole.index(stop)]
    assert last.finish_reason == "stop"


async def test_max_tokens_ends_with_length(make_engine, tools):
    _, last = await tools.answer(
        make_engine(), plain(tools.ids(30, 1)), SamplingParams(max_tokens=3, temperature=0)
    )
    assert (last.token_count, last.finish_reason) == (3, "length")


async def test_closing_the_stream_frees_the_pages_for_the_next(make_engine, tools):
    """With room for one request only, the next one runs as soon as the first is closed."""
    engine = make_engine(kv_pages_tokens=2048)
    stream = engine.generate(
        tools.rag_prompt(), SamplingParams(max_tokens=1500, temperature=0), ReuseOptions()
    )
    await anext(stream)
    waiting = asyncio.create_task(tools.answer(engine, tools.rag_prompt((2, 1)), GREEDY))
    await asyncio.sleep(0.1)
    long = SamplingParams(max_tokens=1500, temperature=0)
    blocked = asyncio.create_task(tools.answer(engine, tools.rag_prompt((1, 2)), long))
    await asyncio.sleep(0.1)
    assert not blocked.done()
    await stream.aclose()
    await asyncio.wait_for(waiting, 30)
    blocked.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await blocked
    text, _ = await asyncio.wait_for(tools.answer(engine, tools.rag_prompt((2, 1)), GREEDY), 30)
    assert text


async def test_progress_says_what_was_computed_before_the_first_token(make_engine, tools):
    """A prompt in parts counts part by part, one that waits for its place not at all."""
    engine = make_engine(max_batch_tokens=64, kv_pages_tokens=2048)
    progress, waiting = Progress(), Progress()
    seen = set()
    prompt = plain(tools.ids(1500, 5))
    last = SamplingParams(max_tokens=2, temperature=0)

    async def ask(progress: Progress) -> None:
        async for _ in engine.generate(prompt, last, FULL, progress=progress):
            pass

    first, second = (asyncio.create_task(ask(each)) for each in (progress, waiting))
    while not first.done() and progress.completion_tokens == 0:
        seen.add(progress.prompt_tokens)
        assert waiting == Progress()
        await asyncio.sleep(0.001)
    second.cancel()
    await first
    assert progress == Progress(prompt_tokens=1500, completion_tokens=2)
    assert {tokens for tokens in seen if 0 < tokens < 1500}
    assert all(tokens % 64 == 0 or tokens == 1500 for tokens in seen)


async def test_progress_of_a_blended_prompt_counts_what_was_cached(make_engine, tools):
    engine = make_engine()
    await tools.answer(engine, tools.rag_prompt())
    await tools.settle(engine)
    progress = Progress()
    prompt = tools.rag_prompt((2, 0, 1))
    async for delta in engine.generate(prompt, GREEDY, ReuseOptions(), progress=progress):
        last = delta
    assert last.report.cached_tokens > 100
    assert progress == Progress(len(prompt), last.report.cached_tokens, last.token_count)


async def test_too_many_waiting_requests_are_turned_away(make_engine, tools):
    engine = make_engine(kv_pages_tokens=2048, max_waiting_requests=1)
    long = SamplingParams(max_tokens=1700, temperature=0)
    running = engine.generate(tools.rag_prompt(), long, ReuseOptions())
    await anext(running)
    waiting = asyncio.create_task(tools.answer(engine, tools.rag_prompt((1,)), long))
    await asyncio.sleep(0.05)
    with pytest.raises(EngineOverloaded):
        await tools.answer(engine, tools.rag_prompt((2,)), long)
    waiting.cancel()
    await running.aclose()


async def test_a_prompt_that_cannot_fit_is_refused_with_the_numbers(make_engine, tools):
    with pytest.raises(PromptTooLong) as error:
        await tools.answer(make_engine(), plain(tools.ids(2040, 1)))
    assert (error.value.prompt_tokens, error.value.limit) == (2040, 2048)


async def test_an_unknown_selector_is_refused_by_name(make_engine, tools):
    with pytest.raises(UnknownSelector, match="no_such"):
        await tools.answer(
            make_engine(), tools.rag_prompt(), reuse=ReuseOptions(selector="no_such")
        )


async def test_a_stopped_engine_says_so(make_engine, tools):
    engine = make_engine()
    engine.stop()
    with pytest.raises(EngineStopped):
        await tools.answer(engine, tools.rag_prompt())


async def test_stopping_ends_running_requests(make_engine, tools):
    engine = make_engine()
    stream = engine.generate(
        tools.rag_prompt(), SamplingParams(max_tokens=1500, temperature=0), ReuseOptions()
    )
    await anext(stream)
    await asyncio.to_thread(engine.stop)
    with pytest.raises(EngineStopped):
        async for _ in stream:
            pass


async def test_a_long_prompt_is_prefilled_in_parts(make_engine, tiny, tools):
    engine = make_engine(max_batch_tokens=128)
    prompt = plain(tools.ids(500, 5))
    assert (await tools.answer(engine, prompt, reuse=FULL))[0] == generated(tiny, prompt)
