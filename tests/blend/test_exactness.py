"""Blended prefill against the full prefill of `transformers`, in fp32."""

from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache

from kvweave.blend import SELECTORS, PromptLayout, finish_blend, select_tokens, start_blend
from kvweave.blend.feed import HostFeed
from kvweave.blend.stale import STALE_BIAS
from kvweave.engine.loading import LoadedModel

TOLERANCE = 1e-3


def segments(bench, *, order=(0, 1, 2), missing=(), repeat=None):
    """A system prefix, three chunks in `order`, some not cached, and a question."""
    chunks = [bench.ids(60 + 10 * i, seed=i) for i in range(3)]
    listed = [("missing" if i in missing else "cached", chunks[i]) for i in order]
    if repeat is not None:
        listed.append(("cached", chunks[repeat]))
    prefix = bench.ids(12, seed=90)
    return [("system", prefix), *listed, ("fresh", bench.ids(15, seed=91))], prefix


def kv_error(filled: DynamicCache, reference: DynamicCache, positions: slice) -> float:
    """Largest difference of keys or values over all layers at these positions."""
    return max(
        float((a[:, :, positions] - b[:, :, positions]).abs().max())
        for mine, theirs in zip(filled.layers, reference.layers, strict=True)
        for a, b in ((mine.keys, theirs.keys), (mine.values, theirs.values))
    )


@pytest.mark.parametrize("selector", sorted(SELECTORS))
def test_ratio_one_gives_the_full_prefills_kv_and_logits(bench, selector):
    layout = bench.layout(*segments(bench, order=(2, 0, 1)))
    result, filled = bench.blend(layout, selector, ratio=1.0)
    expected, reference = bench.full_prefill(layout)
    assert kv_error(filled, reference, slice(0, layout.tokens - 1)) < TOLERANCE
    assert (bench.next_logits(layout, filled) - expected).abs().max() < TOLERANCE
    assert result.selected == int(layout.candidates.sum())


class KeepingFeed(HostFeed):
    """Brings each layer in once, and keeps it."""

    keeps_layers = True

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        if layer not in self.kept:
            keys, values = super().layer(layer)
            self.kept[layer] = keys.clone(), values.clone()
        return self.kept[layer]


@pytest.mark.parametrize("selector", ["sentences", "none"])
def test_where_layers_are_kept_all_is_computed_before_there_is_room_for_it(
    llama, selector, monkeypatch
):
    layout = llama.layout(*segments(llama, order=(2, 0, 1), missing=(0,)))
    _, expected = llama.blend(layout, selector, ratio=0.3)
    monkeypatch.setattr(
        "kvweave.blend.prefill.make_feed",
        lambda model, layout, workspace, *, overlap: KeepingFeed(model, layout, overlap=overlap),
    )
    model = llama.blendable
    begun = start_blend(model, layout, SELECTORS[selector], 0.3)
    assert begun.computed
    monkeypatch.setattr(model, "finish", None)  # nothing is left to compute
    filled = DynamicCache()
    finish_blend(begun, lambda layer, k, v: filled.update(k[None].clone(), v[None].clone(), layer))
    assert kv_error(filled, expected, slice(0, layout.tokens - 1)) < 1e-6


def test_ratio_zero_is_plain_reuse_rotated_in_place(bench):
    """Cached tokens keep the KV they were stored with; only their keys' angle follows them."""
    prompt, prefix = segments(bench, order=(1, 2))
    layout = bench.layout(prompt, prefix)
    result, filled = bench.blend(layout, ratio=0.0)
    _, alone = bench.full_prefill(PromptLayout([*prefix, *prompt[2][1], 5], []))
    start, length = 12 + 70, 80
    for layer, reference in zip(filled.layers, alone.layers, strict=True):
        values = layer.values[:, :, start : start + length]
        assert (values - reference.values[:, :, 12 : 12 + length]).abs().max() < TOLERANCE
        # Scores between two keys depend on their distance alone, so a rotated chunk keeps them.
        keys = layer.keys[0, :, start : start + length]
        stored = reference.keys[0, :, 12 : 12 + length]
        here, there = keys @ keys.transpose(1, 2), stored @ stored.transpose(1, 2)
        torch.testing.assert_close(here, there, atol=2e-3, rtol=1e-3)
    assert (result.selected, result.forced) == (0, 14)


@torch.no_grad()
def test_recomputed_tokens_see_stale_ones_less(llama):
    """The model run over the recomputed tokens alone, the others' KV given, by our own mask."""
    layout = llama.layout(*segments(llama, order=(2, 0, 1), missing=(0,)))
    _, reused = llama.blend(layout, ratio=0.0)
    _, blended = llama.blend(layout, "chunk_heads", ratio=0.3)
    chosen = select_tokens(llama.blendable, layout, SELECTORS["chunk_heads"], 0.3).positions
    rows = torch.cat([layout.forced, chosen]).sort().values
    kept = torch.tensor(sorted(set(range(layout.tokens - 1)) - set(rows.tolist())))
    cache = DynamicCache()
    for number, layer in enumerate(reused.layers):
        cache.update(layer.keys[:, :, kept], layer.values[:, :, kept], number)
    keys = torch.cat([kept, rows])
    mask = torch.zeros(len(rows), len(keys))
    mask[:, (layout.candidates[keys]) & (torch.arange(len(keys)) < len(kept))] = STALE_BIAS
    mask[keys > rows[:, None]] = float("-inf")
    llama.model(
        layout.token_ids[rows][None],
        position_ids=rows[None],
        attention_mask=mask[None, None],
        cache=cache,
        use_cache=True,
    )
    for mine, theirs in zip(blended.layers, cache.layers, strict=True):
        for a, b in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
            assert (a[:, :, rows] - b[:, :, len(kept) :]).abs().max() < TOLERANCE
            assert torch.equal(a[:, :, kept], b[:, :, : len(kept)])


def test_a_chunk_right_after_the_prefix_equals_full_prefill(bench):
    prompt, prefix = segments(bench, order=(1,))
    layout = bench.layout(prompt, prefix)
    result, filled = bench.blend(layout, ratio=0.0)
    expected, reference = bench.full_prefill(layout)
    assert kv_error(filled, reference, slice(0, layout.tokens - 1)) < TOLERANCE
    assert (bench.next_logits(layout, filled) - expected).abs().max() < TOLERANCE
    assert result.selected == 0


def test_a_chunk_at_the_very_front_without_prefix_equals_full_prefill(bench):
    layout = bench.layout([("cached", bench.ids(70, 1)), ("fresh", bench.ids(9, 2))])
    _, filled = bench.blend(layout, ratio=0.0)
    expected, _ = bench.full_prefill(layout)
    assert (bench.next_logits(layout, filled) - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize(
    "kwargs",
    [
        {"order": (2, 1, 0)},
        {"order": (1, 0, 2), "missing": (0,)},
        {"missing": (0, 1, 2)},
        {"repeat": 0},
        {"order": (1,)},
        {"order": ()},
    ],
    ids=["reversed", "hole", "all-missing", "repeated", "alone", "no-chunks"],
)
@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "no-overlap"])
def test_every_shape_of_prompt_is_exact_at_ratio_one(llama, kwargs, overlap):
    prompt, prefix = segments(llama, **kwargs)
    layout = llama.layout(prompt, prefix)
    _, filled = llama.blend(layout, ratio=1.0, overlap=overlap)
    expected, _ = llama.full_prefill(layout)
    assert (llama.next_logits(layout, filled) - expected).abs().max() < TOLERANCE


def test_a_prompt_that_ends_in_a_cached_chunk_still_leaves_the_last_token(llama):
    prefix = llama.ids(12, 90)
    prompt = [("system", prefix), *(("cached", llama.ids(30, i)) for i in range(2))]
    layout = llama.layout(prompt, prefix)
    _, filled = llama.blend(layout, ratio=1.0)
    expected, _ = llama.full_prefill(layout)
    assert filled.get_seq_length() == layout.tokens - 1
    assert (llama.next_logits(layout, filled) - expected).abs().max() < TOLERANCE


def test_missing_chunks_are_exact_when_everything_before_them_is(llama):
    """A forced row sees the true KV of all before it: the prefix and the chunk right after."""
    prompt, prefix = segments(llama, order=(0, 1), missing=(1,))
    layout = llama.layout(prompt, prefix)
    _, filled = llama.blend(layout, ratio=0.0)
    expected, _ = llama.full_prefill(layout)
    assert (llama.next_logits(layout, filled) - expected).abs().max() < TOLERANCE


def test_more_recomputing_comes_closer_to_the_full_prefill(llama):
    prompt, prefix = segments(llama, order=(2, 0, 1))
    layout = llama.layout(prompt, prefix)
    expected, _ = llama.full_prefill(layout)
    errors = []
    for ratio in (0.0, 0.5, 1.0):
        _, filled = llama.blend(layout, ratio=ratio)
        errors.append(float((llama.next_logits(layout, filled) - expected).norm()))
    assert errors[0] > errors[1] > errors[2]


def test_smollm2_at_ratio_one_equals_full_prefill(smollm2: LoadedModel, make_bench):
    bench = make_bench(smollm2.model)
    prompt, prefix = segments(bench, order=(2, 0, 1), missing=(0,))
    layout = bench.layout(prompt, prefix)
    _, filled = bench.blend(layout, ratio=1.0)
    expected, _ = bench.full_prefill(layout)
    assert (bench.next_logits(layout, filled) - expected).abs().max() < TOLERANCE
