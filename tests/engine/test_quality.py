"""The quality guard in a running engine: audits, the ratio they move, and the gate's verdict."""

from __future__ import annotations

import asyncio

import pytest

from kvweave.engine import ReuseOptions, SamplingParams
from kvweave.kv import KVFormat
from kvweave.quality import Check, GateResult


async def audited(engine, tools, count, **changes):
    """Send requests, wait for their audits; returns what the guard knows then."""
    for question in range(count):
        prompt = tools.rag_prompt(order=(2, 0, 1), question=100 + question)
        params = SamplingParams(max_tokens=4, temperature=0)
        await tools.answer(engine, prompt, params, ReuseOptions(**changes))
        while engine.quality()["audits_waiting"]:
            await asyncio.sleep(0.005)
    await tools.settle(engine)
    return engine.quality()


@pytest.fixture
async def engine(make_engine, tools):
    """An engine that audits every request; its chunks are stored."""
    engine = make_engine(quality={"gate": False, "audit_fraction": 1.0, "max_kl": 0.1})
    await tools.answer(engine, tools.rag_prompt())
    await tools.settle(engine)
    return engine


async def test_audits_tell_how_far_answers_are_from_a_full_prefill(engine, tools):
    quality = await audited(engine, tools, 5)
    assert quality["audits"]["count"] == 5
    assert quality["recompute_ratio"] == 0.15
    for audit in quality["recent"]:
        assert 0 <= audit["kl"] < 0.1
        assert audit["answer_tokens"] == 4
        assert 0 <= audit["text_agreement"] <= 1


async def test_at_ratio_one_an_audit_finds_no_difference(make_engine, tools):
    engine = make_engine(
        quality={"gate": False, "audit_fraction": 1.0}, recompute_ratio=1.0, selector="kv_deviation"
    )
    await tools.answer(engine, tools.rag_prompt())
    await tools.settle(engine)
    quality = await audited(engine, tools, 3)
    assert quality["serving"].startswith("full prefill")
    assert quality["audits"]["kl_mean"] < 1e-4
    assert quality["audits"]["top1_agreement"] == quality["audits"]["text_agreement"] == 1


async def test_requests_that_chose_their_own_ratio_are_not_audited(engine, tools):
    quality = await audited(engine, tools, 3, recompute_ratio=0.5)
    assert quality["audits"] == {"count": 0}


async def test_an_audit_leaves_no_log_probabilities_in_the_answer(engine, tools):
    _, last = await tools.answer(engine, tools.rag_prompt(order=(1, 0, 2)))
    assert last.report.first_token_logprobs is None


async def test_audits_run_only_while_no_request_does(engine, tools, monkeypatch):
    """The audit of one request waits while another streams."""
    monkeypatch.setattr(engine._auditor, "_is_idle", lambda: False)
    await tools.answer(engine, tools.rag_prompt(order=(1, 0, 2)))
    await asyncio.sleep(0.3)
    assert engine.quality()["audits"] == {"count": 0}
    monkeypatch.setattr(engine._auditor, "_is_idle", lambda: True)
    for _ in range(500):
        if engine.quality()["audits"]["count"]:
            return
        await asyncio.sleep(0.02)
    pytest.fail("the audit never ran")


async def test_a_drop_in_quality_raises_the_ratio_and_its_end_lowers_it(
    engine, tools, monkeypatch, caplog
):
    read = KVFormat.decode_layer

    def spoilt(self, key_pages, value_pages, keys, values):
        read(self, key_pages, value_pages, keys, values)
        values.neg_()

    with monkeypatch.context() as fault:
        fault.setattr(KVFormat, "decode_layer", spoilt)
        quality = await audited(engine, tools, 50)
    assert quality["recompute_ratio"] > 0.15
    assert "recompute ratio 0.15 -> 0.2: mean KL" in caplog.text
    prompt = tools.rag_prompt(order=(1, 2, 0), question=999)
    _, last = await tools.answer(engine, prompt)
    assert last.report.recompute_ratio in (quality["recompute_ratio"], None)
    risen = quality["recompute_ratio"]
    for _ in range(8):
        quality = await audited(engine, tools, 16)
        if quality["recompute_ratio"] == 0.15:
            break
    assert quality["recompute_ratio"] < risen
    assert quality["changes"][-1]["after"] < quality["changes"][-1]["before"]


async def test_a_model_that_failed_its_check_is_served_with_full_prefills(
    make_engine, tools, monkeypatch, caplog
):
    failed = GateResult(0.0, (Check("rotation", 0.5, 0.001, "error"),))
    monkeypatch.setattr("kvweave.engine.build.check_once", lambda *args, **kwargs: failed)
    engine = make_engine(quality={"gate": True})
    await tools.answer(engine, tools.rag_prompt())
    await tools.settle(engine)
    prompt = tools.rag_prompt(order=(2, 1, 0))
    text, last = await tools.answer(engine, prompt)
    assert last.report.matched == last.report.selected == 0
    assert "rotation" in last.report.plan
    full, _ = await tools.answer(engine, prompt, reuse=ReuseOptions(mode="full"))
    assert text == full
    assert "QUALITY CHECK FAILED" in caplog.text
    # who asks for a ratio is experimenting, and gets it
    wish = ReuseOptions(recompute_ratio=0.3)
    await tools.answer(engine, prompt, reuse=wish)
    await tools.settle(engine)
    _, last = await tools.answer(engine, prompt, reuse=wish)
    assert last.report.matched > 0


async def test_an_explanation_says_what_an_answer_then_does(make_engine, tools):
    engine = make_engine()
    await tools.answer(engine, tools.rag_prompt(order=(0, 1)))
    await tools.settle(engine)
    prompt = tools.rag_prompt(order=(1, 2, 0))
    explained = await engine.explain(prompt, ReuseOptions(recompute_ratio=0.25))
    _, last = await tools.answer(engine, prompt, reuse=ReuseOptions(recompute_ratio=0.25))
    counts = explained.counts()
    assert counts["selected"] == last.report.selected > 0
    assert counts["exact"] + counts["kept"] == last.report.cached_tokens
    assert counts["computed"] == last.report.forced
    assert [segment.tier for segment in explained.segments] == [None, "gpu", None, "gpu", None]
    assert explained.segments[2].miss_reason == "new"
    assert sum(len(segment.texts) for segment in explained.segments) == len(prompt)
    weights = [weight for segment in explained.segments for weight in segment.weights]
    assert len(weights) == len(prompt)
    assert max(weights) == 1


async def test_what_failed_can_be_accepted(make_engine, tools, monkeypatch):
    accepted = GateResult(0.0, (Check("questions", 0.5, 0.3, "mean KL"),), accepted=True)
    monkeypatch.setattr("kvweave.engine.build.check_once", lambda *args, **kwargs: accepted)
    engine = make_engine(quality={"gate": True})
    await tools.answer(engine, tools.rag_prompt())
    await tools.settle(engine)
    _, last = await tools.answer(engine, tools.rag_prompt(order=(2, 1, 0)))
    assert last.report.matched > 0
