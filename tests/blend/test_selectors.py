"""One matrix over all selectors, and what makes each of them itself."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from kvweave.blend import SELECTORS, Selection
from kvweave.blend.feed import make_feed
from kvweave.blend.rope import RowPositions
from kvweave.blend.rows import run_apart
from kvweave.blend.selectors.base import Stretches
from kvweave.blend.selectors.links import linked_scores
from kvweave.blend.selectors.sentences import REACH, evened, whole_sentences
from kvweave.models import ReadingProfile


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


def question_weights(llama, layout):
    """`transformers`' own attention weights of the question over plainly reused KV."""
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
    return [weights[0] for weights in out.attentions]


def test_query_attention_finds_the_tokens_the_question_attends_to(llama, layout):
    upper = question_weights(llama, layout)[llama.blendable.layers // 3 :]
    scores = sum(weights.amax(dim=(0, 1)) for weights in upper)
    scores[~layout.candidates] = -1
    expected = scores.topk(15).indices
    assert set(select(llama, layout, "query_attention", 15).tolist()) == set(expected.tolist())


def test_sentences_takes_the_sentence_that_the_retrieval_heads_attend_to_most(llama, layout):
    weights = question_weights(llama, layout)
    heads = ((0, 3), (2, 0))  # one in the first layer: the question sees the chunks in all
    scores = sum(weights[layer][head].amax(dim=0) for layer, head in heads)
    ends = torch.zeros(llama.blendable.vocab_size, dtype=torch.bool)
    ends[layout.token_ids[layout.candidates][::7]] = True  # a sentence every few tokens
    bounds = sorted(
        {p.start for p in layout.placements}
        | {i + 1 for i in range(layout.tokens - 1) if ends[layout.token_ids[i]]}
    )
    stretches = [range(a, b) for a, b in pairwise([*bounds, layout.tokens])]
    stretches = [s for s in stretches if layout.candidates[s.start : s.stop].all()]
    best = max(stretches, key=lambda s: float(scores[s.start : s.stop].mean()))

    llama.blendable.profile = ReadingProfile(heads, ends)
    assert select(llama, layout, "sentences", len(best)).sort().values.tolist() == list(best)


def test_what_a_place_alone_draws_counts_by_its_root_only():
    torch.manual_seed(0)
    scores = torch.rand(2000) + 0.1
    scores[1000:] *= 100.0
    even = evened(scores, torch.ones(2000, dtype=torch.bool))
    early, late = even[: 1000 - REACH].mean(), even[1000 + REACH :].mean()
    assert late / early == pytest.approx(10.0, rel=0.1)


def test_scores_that_are_no_candidates_do_not_move_the_others():
    candidates = torch.arange(600) >= 300
    scores = torch.rand(600) + 0.1
    louder = torch.where(candidates, scores, 50 * scores)
    assert torch.allclose(
        evened(scores, candidates)[candidates], evened(louder, candidates)[candidates]
    )


def linked(llama, chunks, scores):
    """What sentences of four tokens each get, in chunks of several sentences."""
    prefix = tuple(range(1, 9))
    layout = llama.layout([("system", prefix), *(("cached", c) for c in chunks), ("fresh", (9,))])
    numbers = np.arange(layout.tokens) // 4
    found = torch.tensor(scores).repeat_interleave(4)[: layout.tokens]
    return linked_scores(layout, numbers, Stretches.of(numbers), found)


def test_a_sentence_gets_something_from_one_that_it_shares_rare_words_with(llama):
    chunks = [(20, 21, 22, 23, 30, 31, 5, 6), (20, 21, 40, 5, 50, 51, 52, 6)]
    found = linked(llama, chunks, [9.0, 9.0, 1.0, 0.0, 0.0, 0.0, 9.0])
    # Of four sentences, two have 20, 21 and 5; one has each of the others.
    common, alone = math.log(4 / 2), math.log(4 / 1)
    source, target = 2 * common**2 + 2 * alone**2, 3 * common**2 + alone**2
    assert float(found[4]) == pytest.approx(0.5 * (2 * common**2) ** 2 / (source * target))
    assert found[3] == found[5] == 0.0
    assert found[2] == 0.0, "a source gets nothing from itself"


def test_words_that_stand_everywhere_link_nothing(llama):
    chunks = [(20, 21, 5, 6, 30, 31, 5, 6), (40, 41, 5, 6, 50, 51, 5, 6)]
    assert linked(llama, chunks, [0.0, 0.0, 1.0, 0.2, 0.1, 0.1, 0.0]).abs().max() < 1e-6


def test_what_is_no_chunk_links_nothing(llama):
    chunks = [(20, 21, 22, 23), (1, 2, 3, 4)]
    assert linked(llama, chunks, [1.0, 1.0, 0.0, 0.0, 1.0]).abs().max() == 0.0


def test_a_linked_sentence_is_taken_before_one_that_is_attended_to_less_than_the_link():
    sentences = Stretches.of(np.array([0, 0, 1, 1, 2, 2]))
    scores = torch.tensor([0.5, 0.5, 0.1, 0.1, 0.0, 0.0])
    candidates = torch.ones(6, dtype=torch.bool)
    links = torch.tensor([0.0, 0.0, 0.2])
    assert set(whole_sentences(scores, sentences, candidates, 4, links).tolist()) == {0, 1, 4, 5}
    assert set(whole_sentences(scores, sentences, candidates, 4).tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(("heads", "layers"), [(((1, 0),), 1), (((0, 1), (1, 0)), 2)])
def test_sentences_reads_no_layer_before_or_after_those_that_matter(llama, layout, heads, layers):
    """A quarter of the four layers goes without the chunks, unless a head there is watched."""
    llama.blendable.profile = ReadingProfile(heads, None)
    feed = make_feed(llama.blendable, layout, overlap=True)
    with torch.no_grad():
        SELECTORS["sentences"].select(Selection(llama.blendable, layout, feed, 9))
    assert feed.layers_loaded == layers


@torch.no_grad()
def test_rows_apart_are_a_text_of_their_own_at_their_positions(llama, layout):
    """Against `transformers`, given the question alone."""
    rows = layout.question
    out = llama.model(
        layout.token_ids[rows][None], position_ids=rows[None], output_hidden_states=True
    )
    model, feed = llama.blendable, make_feed(llama.blendable, layout, overlap=True)
    placed = RowPositions(rows, feed.cos, feed.sin)
    found = run_apart(model, model.embed(layout.token_ids[rows]), placed, 2)
    torch.testing.assert_close(found, out.hidden_states[2][0], atol=1e-5, rtol=1e-4)


def test_sentences_that_fit_are_taken_whole_and_the_rest_of_the_budget_by_token():
    sentences = Stretches.of(np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 3]))
    scores = torch.tensor([0.1, 0.0, 0.0, 0.9, 0.7, 0.6, 0.0, 0.5, 0.9, 0.0])
    candidates = torch.ones(10, dtype=torch.bool)
    # Sentence 1 leads (mean .8); sentence 2 (.5) is too long for what is left of five.
    assert set(whole_sentences(scores, sentences, candidates, 5).tolist()) == {3, 4, 8, 5, 7}
    assert set(whole_sentences(scores, sentences, candidates, 6).tolist()) == {3, 4, 5, 6, 7, 8}


def test_tokens_that_need_no_recomputing_are_no_part_of_a_sentence():
    sentences = Stretches.of(np.array([0, 0, 1, 1]))
    scores = torch.tensor([1.0, 0.1, 0.3, 0.3])
    candidates = torch.tensor([False, True, True, True])
    assert whole_sentences(scores, sentences, candidates, 2).tolist() == [2, 3]
