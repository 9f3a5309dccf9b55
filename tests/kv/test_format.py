"""Pages of bytes: exact where they should be, close where they may be."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvweave.kv import PAGE_TOKENS, KVFormat, KVLayout

shapes = st.tuples(st.integers(1, 3), st.integers(1, 3), st.sampled_from([2, 8, 64]))


@settings(deadline=None, max_examples=40)
@given(
    shape=shapes,
    tokens=st.integers(1, 70),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_exact_storage_gives_back_every_bit(shape, tokens, dtype):
    fmt = KVFormat(KVLayout(*shape, dtype))
    kv = torch.randn(fmt.layout.shape(tokens)).to(dtype)
    pages = fmt.encode(kv)
    assert pages.numel() == fmt.nbytes(tokens)
    assert torch.equal(fmt.decode(pages, tokens), kv)


@settings(deadline=None, max_examples=30)
@given(shape=shapes, tokens=st.integers(1, 40), cut=st.integers(1, 40))
def test_a_layer_can_be_read_short_of_its_end(shape, tokens, cut):
    """A prompt may end within a chunk: what does not fit is left out, nothing else is touched."""
    fmt, cut = KVFormat(KVLayout(*shape, torch.float32)), min(cut, tokens)
    kv = torch.randn(fmt.layout.shape(tokens))
    layer = fmt.encode(kv)[: -(-cut // PAGE_TOKENS), 0]
    keys, values = torch.zeros(2, *kv.shape[2:3], cut + 3, kv.shape[4])
    span = slice(0, cut)
    split = fmt.key_bytes
    fmt.decode_layer(layer[:, :split], layer[:, split:], keys[:, span], values[:, span])
    assert torch.equal(keys[:, :cut], kv[0, 0, :, :cut])
    assert torch.equal(values[:, :cut], kv[0, 1, :, :cut])
    assert not keys[:, cut:].any()


@pytest.mark.parametrize(("storage", "error"), [("int8", 0.01), ("fp8", 0.04)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eight_bits_are_close_and_a_half_or_a_quarter_of_the_size(storage, error, dtype):
    layout = KVLayout(2, 3, 64, dtype)
    exact, small = KVFormat(layout), KVFormat(layout, storage)
    kv = torch.randn(layout.shape(50))
    kv[:, 0, :, :, 5] *= 50  # one loud key channel, as real models have
    kv = kv.to(dtype)
    found = small.decode(small.encode(kv), 50)
    quiet = [d for d in range(64) if d != 5]
    for part in range(2):
        there, here = kv[:, part][..., quiet].float(), found[:, part][..., quiet].float()
        assert (here - there).norm() / there.norm() < error
    assert small.nbytes(50) < 0.63 * exact.nbytes(50) * 2 / dtype.itemsize


@pytest.mark.parametrize("storage", ["int8", "fp8"])
def test_zeros_and_padding_stay_finite(storage):
    fmt = KVFormat(KVLayout(1, 1, 8, torch.float32), storage)
    kv = torch.zeros(fmt.layout.shape(17))
    assert torch.equal(fmt.decode(fmt.encode(kv), 17), kv)
