"""The GPU's kernels, in Triton's interpreter, against torch's operators.

Only with TRITON_INTERPRET=1 in the environment and Triton installed (`make test-vllm`).
"""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

from kvweave.blend.attention import CausalRows
from kvweave.blend.rope import apply_rope
from kvweave.kv import PAGE_TOKENS, KVFormat, KVLayout

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None,
    reason="needs Triton and TRITON_INTERPRET=1",
)


def heads_of(tokens: int, heads: int, dim: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random `[heads, tokens, dim]`, tokens before heads in memory."""
    return torch.randn(tokens, heads, dim, dtype=dtype).transpose(0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("heads", "group", "dim", "rows", "keys", "biased"),
    [
        (4, 2, 32, 70, 300, False),  # several blocks of rows
        (4, 4, 16, 5, 1300, True),  # few rows over many keys: split, and combined
        (6, 3, 64, 130, 200, True),
        (2, 1, 16, 1, 40, False),  # one row
        (2, 2, 16, 64, 1100, False),
    ],
)
def test_attention_and_what_it_observes(dtype, heads, group, dim, rows, keys, biased):
    from kvweave.blend.gpu.attention import attend, observe

    torch.manual_seed(0)
    q = heads_of(rows, heads, dim, dtype)
    k, v = (heads_of(keys, heads // group, dim, dtype) for _ in range(2))
    positions = torch.randperm(keys)[:rows].sort().values
    bias = None
    if biased:
        bias = torch.randn(keys)
        bias[torch.rand(keys) > 0.7] = bias[: keys // 3] = float("-inf")
        bias[positions] = 0.0
    expected, strongest = CausalRows(positions, dtype, bias).attend_and_observe(q, k, v, 0.3)
    out, sums = attend(q, k, v, positions.int(), bias, 0.3)
    seen = observe(q, k, positions.int(), bias, sums, 0.3)
    chosen = [0, heads - 1]
    _, of_chosen = CausalRows(positions, dtype, bias).attend_and_observe(q, k, v, 0.3, chosen)
    seen_by_chosen = observe(q, k, positions.int(), bias, sums, 0.3, chosen)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-3
    assert torch.allclose(out.float(), expected.float(), atol=tolerance, rtol=tolerance)
    assert torch.allclose(seen, strongest, atol=tolerance)
    assert torch.allclose(seen_by_chosen, of_chosen, atol=tolerance)


@pytest.mark.parametrize("storage", ["auto", "int8"])
def test_gathered_pages_lie_rotated_at_their_places(storage):
    from kvweave.blend.gpu.rotation import gather_layers

    torch.manual_seed(0)
    layers, heads, dim, tokens = 3, 2, 32, 50
    fmt = KVFormat(KVLayout(layers, heads, dim, torch.float32), storage)
    kv = torch.randn(layers, 2, heads, 20 * PAGE_TOKENS, dim)
    pages = fmt.encode(kv)
    source = torch.full((tokens,), -1, dtype=torch.int32)
    source[3:20] = torch.arange(17, dtype=torch.int32) + 5 * PAGE_TOKENS
    source[30:49] = torch.arange(19, dtype=torch.int32) + 9 * PAGE_TOKENS + 3
    cos, sin = torch.randn(tokens, dim), torch.randn(tokens, dim)
    slots = torch.zeros(2, 2, tokens, heads, dim).transpose(2, 3)
    keys, values = slots.unbind(1)
    gather_layers(
        pages.transpose(0, 1).contiguous()[1:],  # the last two
        source,
        torch.tensor([tokens], dtype=torch.int32),
        cos,
        sin,
        keys,
        values,
        stored=fmt.precision.dtype,
        page_tokens=PAGE_TOKENS,
        key_bytes=fmt.key_bytes,
        programs=2,
    )
    stored = fmt.decode(pages, kv.shape[3])[1:]
    held = source >= 0
    at = source[held].long()
    expected = apply_rope(stored[:, 0, :, at].flatten(0, 1), cos[held], sin[held])
    assert torch.allclose(keys[:, :, held].flatten(0, 1), expected, atol=1e-5)
    assert torch.equal(values[:, :, held], stored[:, 1, :, at])
    assert not keys[:, :, ~held].any() and not values[:, :, ~held].any()


def test_rows_are_rotated_and_put_at_their_positions():
    from kvweave.blend.gpu.rotation import place_rows

    torch.manual_seed(0)
    tokens, dim = 40, 32
    rows = torch.tensor([1, 4, 20, 39])
    cos, sin = torch.randn(tokens, dim), torch.randn(tokens, dim)
    q, k, v = heads_of(4, 6, dim), heads_of(4, 2, dim), heads_of(4, 2, dim)
    keys, values = torch.zeros(2, tokens, 2, dim).transpose(1, 2)
    rotated = place_rows(q, k, v, rows.int(), cos, sin, keys, values)
    assert torch.allclose(rotated, apply_rope(q, cos[rows], sin[rows]), atol=1e-5)
    assert torch.allclose(keys[:, rows], apply_rope(k, cos[rows], sin[rows]), atol=1e-5)
    assert torch.equal(values[:, rows], v)
    others = torch.ones(tokens, dtype=torch.bool)
    others[rows] = False
    assert not keys[:, others].any() and not values[:, others].any()
