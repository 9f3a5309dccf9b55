"""Made-up prompts: all lengths that fit are blended, and nothing of them stays."""

from __future__ import annotations

from kvweave.blend import kv_layout
from kvweave.kv import ChunkCache, KVFormat, MemoryTier, make_policy
from kvweave.models import LlamaFamily
from kvweave.reuse import warm_up
from kvweave.reuse.warming import LENGTHS


def test_every_length_that_fits_is_blended_and_nothing_is_left(tiny_llama):
    model = LlamaFamily(tiny_llama)
    fmt = KVFormat(kv_layout(model))
    cache = ChunkCache([MemoryTier("cpu", 10**7, make_policy("lru"), fmt)], fmt)
    assert warm_up(model, cache, None, "query_attention", LENGTHS[1]) == 2
    (stats,) = cache.stats().values()
    assert stats.chunks == 0 and stats.used_bytes == 0


def test_a_failure_is_logged_and_not_raised(tiny_llama, caplog, monkeypatch):
    model = LlamaFamily(tiny_llama)
    fmt = KVFormat(kv_layout(model))
    cache = ChunkCache([MemoryTier("cpu", 10**7, make_policy("lru"), fmt)], fmt)

    def broken(*args):
        raise RuntimeError("planted")

    monkeypatch.setattr(model, "finish", broken)
    assert warm_up(model, cache, None, "query_attention", LENGTHS[0]) == 0
    assert "planted" in caplog.text
