"""Two models on one cache folder: neither uses the other's KV, and the doctor says why."""

from __future__ import annotations

from dataclasses import replace

from kvweave.config import Config
from kvweave.doctor import Settings, Subject
from kvweave.doctor.checks import hit_rate
from kvweave.doctor.subject import counters_of
from kvweave.engine import SamplingParams
from kvweave.metrics import Metrics

SHORT = SamplingParams(max_tokens=1, temperature=0)


async def test_texts_that_another_model_has_stored_are_computed_anew_and_the_doctor_tells(
    make_engine, tools, tiny, tmp_path
):
    prompts = [tools.rag_prompt(order, tokens=400) for order in ((0, 1, 2), (3, 4, 5))]
    for loaded in (tiny, replace(tiny, identity="of-other-weights")):
        metrics = Metrics()
        engine = make_engine(loaded, metrics)
        for prompt in prompts:
            _, last = await tools.answer(engine, prompt, SHORT)
            assert not any(chunk.tier for chunk in last.report.chunks)
        await tools.settle(engine)
        engine.stop()
    config = Config.model_validate(
        {
            "kv_cache": {"ssd_cache_dir": str(tmp_path / "kv")},
            "accounts": {"database_url": str(tmp_path / "accounts.db")},
        }
    )
    subject = Subject(config, Settings("http://server", "", ""), environ={}, home=tmp_path)
    vars(subject)["metrics"] = counters_of(metrics.render().decode())
    (finding,) = hit_rate.check(subject)
    assert finding.code == "hit_rate_model_identity"
    # Six chunks and the system prefix.
    assert "7 texts that this model had to compute had been stored before" in finding.message
    assert "other weights, another tokenizer or another chat template" in finding.message
