"""The marks of a request: they come back as the prompt they describe, or are refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvweave.integrations.vllm.marks import BadMarks, PromptMarks, parse_marks
from kvweave.prompt import Prompt, Segment

segments = st.lists(
    st.builds(
        lambda role, ids: Segment(role, tuple(ids), "c" if role == "chunk" else None),
        st.sampled_from(["chunk", "fresh"]),
        st.lists(st.integers(0, 100), min_size=1, max_size=5),
    ),
    min_size=1,
    max_size=6,
)


@given(segments, st.booleans())
def test_a_prompt_survives_the_way_through_a_request(parts, with_system):
    prefix = (7, 8)
    system = [Segment("system", prefix)] if with_system else []
    prompt = Prompt((*system, *parts), prefix)
    marks = parse_marks(PromptMarks.of(prompt).to_params())
    assert marks is not None
    assert marks.prompt(prompt.token_ids) == prompt


def test_without_a_prefix_of_their_own_the_system_segment_is_the_prefix():
    marks = PromptMarks.model_validate(
        {"segments": [{"role": "system", "tokens": 2}, {"role": "chunk", "tokens": 1}]}
    )
    assert marks.prompt([1, 2, 3]).prefix_ids == (1, 2)


def test_segments_that_do_not_cover_the_prompt_are_refused():
    marks = PromptMarks.model_validate({"segments": [{"role": "chunk", "tokens": 3}]})
    with pytest.raises(BadMarks, match="cover 3 tokens, but the prompt has 4"):
        marks.prompt([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ({}, "segments"),
        ({"segments": [{"role": "user", "tokens": 1}]}, r"segments\.0\.role"),
        ({"segments": [{"role": "chunk", "tokens": 0}]}, r"segments\.0\.tokens"),
        ({"segments": [], "ratio": 1}, "ratio"),
        ({"segments": [], "recompute_ratio": 2}, "recompute_ratio"),
    ],
)
def test_what_is_wrong_is_named(raw, named):
    with pytest.raises(BadMarks, match=named):
        parse_marks({"kvweave": raw})


def test_other_parameters_are_not_ours():
    assert parse_marks(None) is None
    assert parse_marks({"do_remote_prefill": True}) is None


@pytest.mark.parametrize("mode", ["full", "prefix"])
def test_only_chunks_in_a_mode_that_reuses_them_blend(mode):
    prompt = Prompt((Segment("chunk", (1,), "c"),), ())
    assert PromptMarks.of(prompt).blends
    assert not PromptMarks.of(prompt, mode=mode).blends
    assert not PromptMarks.of(Prompt((Segment("fresh", (1,)),), ())).blends
