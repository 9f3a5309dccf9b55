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

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None,
    reason="needs Triton and TRITON_INTERPRET=1",
)


def heads_of(tokens: int, heads: int, dim: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random `[heads, tokens, dim]`, tokens before heads in memory."""
    return torch.randn(tokens, heads, dim, dtype=dtype).transpose(0, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("heads", "group", "dim", "rows", "keys", "holes"),
    [
        (4, 2, 32, 70, 300, False),  # several blocks of rows
        (4, 4, 16, 5, 1300, True),  # few rows over many keys: split, and combined
        (6, 3, 64, 130, 200, True),
        (2, 1, 16, 1, 40, False),  # one row
        (2, 2, 16, 64, 1100, False),
    ],
)
def test_attention_and_what_it_observes(dtype, heads, group, dim, rows, keys, holes):
    from kvweave.blend.gpu.attention import attend, observe

    torch.manual_seed(0)
    q = heads_of(rows, heads, dim, dtype)
    k, v = (heads_of(keys, heads // group, dim, dtype) for _ in range(2))
    positions = torch.randperm(keys)[:rows].sort().values
    visible = None
    if holes:
        visible = torch.rand(keys) > 0.3
        visible[positions] = True
    expected, strongest = CausalRows(positions, dtype, visible).attend_and_observe(q, k, v, 0.3)
    out, sums = attend(q, k, v, positions.int(), visible, 0.3)
    seen = observe(q, k, positions.int(), visible, sums, 0.3)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-3
    assert torch.allclose(out.float(), expected.float(), atol=tolerance, rtol=tolerance)
    assert torch.allclose(seen, strongest, atol=tolerance)


def test_gathered_pages_lie_rotated_at_their_places():
    from kvweave.blend.gpu.rotation import gather_layer

    torch.manual_seed(0)
    heads, dim, page, pages, tokens = 2, 32, 16, 20, 50
    memory = torch.randn(pages, 2 * heads * page * dim)
    source = torch.full((tokens,), -1, dtype=torch.int32)
    source[3:20] = torch.arange(17, dtype=torch.int32) + 5 * page
    source[30:49] = torch.arange(19, dtype=torch.int32) + 9 * page
    cos, sin = torch.randn(tokens, dim), torch.randn(tokens, dim)
    keys, values = torch.zeros(2, tokens, heads, dim).transpose(1, 2)
    gather_layer(
        memory,
        source,
        cos,
        sin,
        keys,
        values,
        page_tokens=page,
        value_offset=heads * page * dim,
        programs=2,
    )
    stored = memory.view(pages, 2, heads, page, dim).permute(1, 2, 0, 3, 4)
    stored = stored.reshape(2, heads, pages * page, dim)
    held = source >= 0
    at = source[held].long()
    expected = apply_rope(stored[0][:, at], cos[held], sin[held])
    assert torch.allclose(keys[:, held], expected, atol=1e-5)
    assert torch.equal(values[:, held], stored[1][:, at])
    assert not keys[:, ~held].any() and not values[:, ~held].any()


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
