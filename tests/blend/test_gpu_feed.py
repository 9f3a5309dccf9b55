"""Blending with a workspace on a GPU, against the same without one. Skipped without a GPU."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kvweave.blend import (
    SELECTORS,
    blended_prefill,
    finish_blend,
    kv_layout,
    make_workspace,
    start_blend,
)
from kvweave.config import Config
from kvweave.kv import KVFormat, build_cache
from kvweave.models import LlamaFamily, ReadingProfile
from kvweave.prompt import Prompt, Segment
from kvweave.reuse import all_cached

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LAYERS, LONGEST = 8, 1000


@pytest.fixture(scope="module")
def model() -> LlamaFamily:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=500,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=LONGEST,
        initializer_range=0.1,
    )
    llama = LlamaForCausalLM(config).eval()
    torch.nn.Module.cuda(llama)
    ends = torch.zeros(500, dtype=torch.bool)
    ends[::11] = True
    return LlamaFamily(llama, ReadingProfile(((2, 1), (4, 6)), ends))


def make_prompt(order: tuple[int, ...]) -> Prompt:
    def ids(count: int, seed: int) -> tuple[int, ...]:
        generator = torch.Generator().manual_seed(seed)
        return tuple(torch.randint(10, 500, (count,), generator=generator).tolist())

    prefix = ids(30, 99)
    chunks = [Segment("chunk", ids(90 + 13 * i, i), str(i)) for i in order]
    return Prompt((Segment("system", prefix), *chunks, Segment("fresh", ids(40, 50))), prefix)


def blended(model, layout, selector, ratio, workspace) -> list[torch.Tensor]:
    kept: list[torch.Tensor] = []

    def keep(layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        kept.append(torch.stack([keys, values]).clone())

    blended_prefill(model, layout, SELECTORS[selector], ratio, keep, workspace=workspace)
    return kept


@pytest.mark.parametrize("held", [LAYERS, 4])
@pytest.mark.parametrize("tier", ["gpu", "cpu"])
@pytest.mark.parametrize(
    ("selector", "storage"),
    [
        ("sentences", "auto"),
        ("sentences", "int8"),
        ("sentences", "fp8"),
        ("query_attention", "auto"),
        ("kv_deviation", "auto"),
        ("none", "auto"),
        ("none", "int8"),
    ],
)
def test_a_workspace_changes_no_number(model, tier, selector, storage, held, monkeypatch, caplog):
    monkeypatch.setattr("kvweave.blend.gpu.workspace.held_layers", lambda *args: held)
    kv = Config().kv_cache.model_copy(
        update={
            "gpu_kv_pool_gb": 0.1 if tier == "gpu" else 0.0,
            "cpu_kv_pool_gb": 0.1 if tier == "cpu" else 0.0,
            "ssd_cache_max_gb": 0.0,
        }
    )
    fmt = KVFormat(kv_layout(model), storage)
    cache = build_cache(kv, fmt, model.device)
    workspace = make_workspace(model, fmt, cache.memories(), LONGEST, record=True)
    assert workspace is not None and workspace.memories
    try:
        for order in ((0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1)):
            with all_cached(model, cache, make_prompt(order), "m") as layout:
                for ratio in (0.2, 0.4, 0.2):
                    expected = blended(model, layout, selector, ratio, None)
                    got = blended(model, layout, selector, ratio, workspace)
                    for layer, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
                        torch.testing.assert_close(
                            ours, theirs, atol=2e-3, rtol=2e-3, msg=f"layer {layer}"
                        )
    finally:
        torch.cuda.synchronize()
        cache.close()
    assert not caplog.records, "what can be recorded was"


def test_work_that_was_begun_is_stale_when_another_prompt_used_the_workspace(model):
    fmt = KVFormat(kv_layout(model))
    kv = Config().kv_cache.model_copy(
        update={"gpu_kv_pool_gb": 0.1, "cpu_kv_pool_gb": 0.0, "ssd_cache_max_gb": 0.0}
    )
    cache = build_cache(kv, fmt, model.device)
    workspace = make_workspace(model, fmt, cache.memories(), LONGEST, record=True)
    first, second = make_prompt((0, 1, 2)), make_prompt((2, 1, 0))
    selector = SELECTORS["sentences"]
    with all_cached(model, cache, first, "m") as one, all_cached(model, cache, second, "m") as two:
        begun = start_blend(model, one, selector, 0.2, workspace=workspace)
        assert begun.fits(first.token_ids, one.placements, 0.2)
        assert not begun.fits(first.token_ids, one.placements, 0.3)
        assert not begun.fits(second.token_ids, two.placements, 0.2)
        later = start_blend(model, two, selector, 0.2, workspace=workspace)
        assert not begun.fits(first.token_ids, one.placements, 0.2)
        finish_blend(later, lambda *args: None)
    torch.cuda.synchronize()
    cache.close()
