"""Chunk lookups are recorded for replay, without a word of the prompt."""

from __future__ import annotations

from kvweave.engine.build import engine_around
from kvweave.kv.trace import read_trace
from kvweave.metrics import Metrics


async def test_every_lookup_is_recorded_with_where_it_was_found(tmp_path, tiny, tools):
    from kvweave.config import Config

    config = Config.model_validate(
        {
            "model": {"max_model_len": 2048},
            "kv_cache": {"ssd_cache_dir": str(tmp_path / "kv"), "plan_loads": False},
            "metrics": {"trace_file": str(tmp_path / "trace.jsonl")},
        }
    )
    engine = engine_around(tiny, config, Metrics())
    engine.start()
    try:
        await tools.answer(engine, tools.rag_prompt((0, 1)))
        await tools.settle(engine)
        await tools.answer(engine, tools.rag_prompt((1, 0)))
    finally:
        engine.stop()
    lookups = list(read_trace(tmp_path / "trace.jsonl"))
    assert [lookup.tier for lookup in lookups] == [None] * 3 + ["gpu"] * 3
    assert [lookup.tokens for lookup in lookups] == [10, 60, 60] * 2
    assert lookups[1].key == lookups[5].key  # chunk 0, first and last
