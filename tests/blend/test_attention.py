"""Row attention and rotation against the plain formulas."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from kvweave.blend.attention import ROWS_PER_BLOCK, CausalRows, full_causal_attention
from kvweave.blend.rope import apply_rope
from kvweave.models import LlamaFamily


def dense(q, k, v, positions, scale, bias=None, reduce=True):
    """Softmax over a dense mask, in fp64."""
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(group, 0).double(), v.repeat_interleave(group, 0).double()
    scores = q.double() @ k.transpose(1, 2) * scale
    if bias is not None:
        scores += bias
    masked = torch.arange(k.shape[1]) > positions[:, None]
    weights = scores.masked_fill(masked, float("-inf")).softmax(-1)
    out = (weights @ v).transpose(0, 1).reshape(len(positions), -1)
    return out, weights.amax(dim=(0, 1)) if reduce else weights


def some_bias(keys, positions):
    """Some keys hidden, some seen less or more, but for the rows' own."""
    bias = torch.randn(keys)
    bias[torch.rand(keys) > 0.5] = float("-inf")
    bias[positions] = 0.0
    return bias


@st.composite
def rows_and_keys(draw):
    keys = draw(st.integers(1, 300))
    positions = draw(st.sets(st.integers(0, keys - 1), min_size=1, max_size=200))
    return keys, torch.tensor(sorted(positions)), draw(st.sampled_from([1, 3]))


@settings(deadline=None, max_examples=40)
@given(rows_and_keys(), st.booleans())
def test_rows_attend_to_what_stands_before_them_and_as_much_as_the_bias_says(case, biased):
    keys, positions, group = case
    torch.manual_seed(keys)
    q = torch.randn(2 * group, len(positions), 8)
    k, v = torch.randn(2, 2, keys, 8)
    bias = some_bias(keys, positions) if biased else None
    rows = CausalRows(positions, torch.float32, bias)
    expected, strongest = dense(q, k, v, positions, 0.3, bias)
    torch.testing.assert_close(rows.attend(q, k, v, 0.3).double(), expected, atol=1e-5, rtol=1e-5)
    out, seen = rows.attend_and_observe(q, k, v, 0.3)
    torch.testing.assert_close(out.double(), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(seen.double(), strongest, atol=1e-5, rtol=1e-5)


@settings(deadline=None, max_examples=20)
@given(rows_and_keys(), st.data())
def test_the_attention_of_a_few_heads_is_that_of_these_alone(case, data):
    keys, positions, group = case
    torch.manual_seed(keys)
    q, (k, v) = torch.randn(2 * group, len(positions), 8), torch.randn(2, 2, keys, 8)
    bias = some_bias(keys, positions)
    heads = sorted(data.draw(st.sets(st.integers(0, 2 * group - 1), min_size=1)))
    _, weights = dense(q, k, v, positions, 0.3, bias, reduce=False)
    seen = CausalRows(positions, torch.float32, bias).observe(q, k, 0.3, heads)
    expected = weights[heads].amax(dim=(0, 1))
    torch.testing.assert_close(seen.double(), expected, atol=1e-5, rtol=1e-5)


def test_keys_behind_the_last_row_are_never_read():
    """A block cuts the keys at its last position: what lies behind may even be NaN."""
    positions = torch.arange(0, 2 * ROWS_PER_BLOCK, 2)
    q, k, v = torch.randn(2, len(positions), 8), *torch.randn(2, 2, 400, 8)
    k[:, positions[-1] + 1 :] = float("nan")
    v[:, positions[-1] + 1 :] = float("nan")
    assert CausalRows(positions, torch.float32).attend(q, k, v, 0.3).isfinite().all()


def test_all_rows_equal_plain_causal_attention():
    q, k, v = torch.randn(4, 150, 8), *torch.randn(2, 2, 150, 8)
    rows = CausalRows(torch.arange(150), torch.float32)
    torch.testing.assert_close(rows.attend(q, k, v, 0.3), full_causal_attention(q, k, v, 0.3))


@pytest.mark.parametrize("start", [0, 7, 1500])
def test_rotation_is_the_models_own(tiny_model, start):
    model = LlamaFamily(tiny_model)
    positions = torch.arange(start, start + 20)
    k = torch.randn(2, 20, model.head_dim)
    cos, sin = tiny_model.get_decoder().rotary_emb(k, positions[None])
    _, expected = apply_rotary_pos_emb(k[None], k[None], cos, sin)
    found = apply_rope(k, *model.rope_table(positions))
    torch.testing.assert_close(found, expected[0], atol=1e-5, rtol=1e-5)
