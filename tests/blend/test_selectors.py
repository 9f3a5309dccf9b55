"""One matrix over all selectors, and what makes each of them itself."""

from __future__ import annotations

import pytest
import torch

from kvweave.blend import SELECTORS, Selection
from kvweave.blend.feed import make_feed


@pytest.fixture
def layout(llama):
    prefix = llama.ids(10, 90)
    prompt = [
        ("system", prefix),
        ("cached", llama.ids(50, 0)),
        ("cached", llama.ids(40, 1)),
        ("missing", llama.ids(30, 2)),
        ("cached", llama.ids(60, 3)),
        ("fresh", llama.ids(12, 91)),
    ]
    return llama.layout(prompt, prefix)


def select(llama, layout, name, budget):
    feed = make_feed(llama.blendable, layout, overlap=True)
    with torch.no_grad():
        return SELECTORS[name].select(Selection(llama.blendable, layout, feed, budget))


@pytest.mark.parametrize("budget", [1, 7, 60])
@pytest.mark.parametrize("name", sorted(SELECTORS))
def test_selects_distinct_candidates_within_the_budget(llama, layout, name, budget):
    chosen = select(llama, layout, name, budget)
    assert chosen.dtype == torch.int64
    assert len(chosen) == len(chosen.unique()) == (0 if name == "none" else budget)
    assert bool(layout.candidates[chosen].all())


@pytest.mark.parametrize("name", sorted(SELECTORS))
def test_the_same_prompt_gives_the_same_choice(llama, layout, name):
    first, second = (select(llama, layout, name, 20) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("name", sorted(SELECTORS))
def test_the_budget_is_the_ratio_of_cached_chunk_tokens(llama, layout, name):
    result, _ = llama.blend(layout, name, ratio=0.2)
    assert result.selected == (0 if name == "none" else round(0.2 * (50 + 40 + 60)))
    assert result.forced == 30 + 12 - 1


def test_the_prefix_and_the_chunk_after_it_are_no_candidates(layout):
    assert not layout.candidates[:60].any()
    assert layout.candidates[60:100].all()


def test_chunk_heads_takes_first_tokens_of_every_chunk_alike(llama, layout):
    chosen = select(llama, layout, "chunk_heads", 8)
    assert sorted(chosen.tolist()) == [60, 61, 62, 63, 130, 131, 132, 133]


def test_kv_deviation_takes_the_tokens_whose_layer_one_values_differ_most(llama, layout):
    """Against values that `transformers` computes for the whole prompt."""
    _, reference = llama.full_prefill(layout)
    feed = make_feed(llama.blendable, layout, overlap=True)
    _, cached = feed.layer(1)
    deviation = (reference.layers[1].values[0] - cached).square().sum(dim=(0, 2))
    deviation[~layout.candidates] = -1
    expected = deviation.topk(10).indices
    assert set(select(llama, layout, "kv_deviation", 10).tolist()) == set(expected.tolist())


def test_query_attention_finds_the_tokens_the_question_attends_to(llama, layout):
    """Against `transformers`' own attention weights over the same plainly reused KV."""
    _, reused = llama.blend(layout, "none", ratio=0.0)
    # The hole is missing in the probe: hide it from the reference as well.
    question = layout.question
    hidden = torch.zeros(1, 1, len(question), layout.tokens)
    hidden[..., ~layout.cached] = float("-inf")
    inside = torch.full((len(question), len(question)), float("-inf")).triu(1)
    hidden[0, 0, :, question] = inside
    for layer in reused.layers:
        layer.keys = layer.keys[:, :, : question[0]]
        layer.values = layer.values[:, :, : question[0]]
    llama.model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            out = llama.model(
                layout.token_ids[None, question],
                cache=reused,
                attention_mask=hidden,
                position_ids=question[None],
                output_attentions=True,
            )
    finally:
        llama.model.set_attn_implementation("sdpa")
    upper = out.attentions[llama.blendable.layers // 3 :]
    scores = sum(weights[0].amax(dim=(0, 1)) for weights in upper)
    scores[~layout.candidates] = -1
    expected = scores.topk(15).indices
    assert set(select(llama, layout, "query_attention", 15).tolist()) == set(expected.tolist())
