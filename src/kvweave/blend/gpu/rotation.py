"""Rotating keys and queries while they are moved, as Triton kernels: each number is touched once.

RoPE in the half-split order of Llama, computed in fp32; see `kvweave.blend.rope`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _rotate(x_ptr, cos_ptr, sin_ptr, out_ptr, at, to, angle, mask, HALF: tl.constexpr):
    """`x` at offsets `at` `[tokens, HALF]`, rotated by the angles at `angle`, to offsets `to`."""
    low = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(x_ptr + at + HALF, mask=mask, other=0.0).to(tl.float32)
    _store_rotated(low, high, cos_ptr, sin_ptr, out_ptr, to, angle, mask, HALF)


@triton.jit
def _store_rotated(low, high, cos_ptr, sin_ptr, out_ptr, to, angle, mask, HALF: tl.constexpr):
    """Both halves of the head dimension, fp32 `[tokens, HALF]`."""
    kind = out_ptr.dtype.element_ty
    cos_low = tl.load(cos_ptr + angle, mask=mask, other=0.0)
    cos_high = tl.load(cos_ptr + angle + HALF, mask=mask, other=0.0)
    sin_low = tl.load(sin_ptr + angle, mask=mask, other=0.0)
    sin_high = tl.load(sin_ptr + angle + HALF, mask=mask, other=0.0)
    tl.store(out_ptr + to, (low * cos_low - high * sin_low).to(kind), mask=mask)
    tl.store(out_ptr + to + HALF, (high * cos_high + low * sin_high).to(kind), mask=mask)


@triton.jit
def _copy(x_ptr, out_ptr, at, to, mask, HALF: tl.constexpr):
    tl.store(out_ptr + to, tl.load(x_ptr + at, mask=mask, other=0.0), mask=mask)
    tl.store(out_ptr + to + HALF, tl.load(x_ptr + at + HALF, mask=mask, other=0.0), mask=mask)


@triton.jit
def _scaled_halves(x_ptr, scale_ptr, at, scale_at, mask, BLOCK: tl.constexpr, HALF: tl.constexpr):
    """Numbers of one byte at `at`, `[BLOCK, 2 * HALF]`, times their scales: two halves, fp32."""
    # In one load: over a bus, a row of bytes is one request, its halves would be two.
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    x = x * tl.load(scale_ptr + scale_at, mask=mask, other=0.0)
    return tl.split(tl.permute(tl.reshape(x, (BLOCK, 2, HALF)), (0, 2, 1)))


@triton.jit
def _gather(
    memory_ptr,
    scale_ptr,
    source_ptr,
    tokens_ptr,
    cos_ptr,
    sin_ptr,
    keys_ptr,
    values_ptr,
    layer_stride,
    page_stride,
    value_offset,
    scale_layer,
    scale_stride,
    key_scales,
    value_scales,
    k_layer,
    v_layer,
    k_head,
    k_token,
    v_head,
    v_token,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK: tl.constexpr,
    SCALED: tl.constexpr,
):
    head = tl.program_id(1)
    layer = tl.program_id(2).to(tl.int64)
    memory_ptr += layer * layer_stride
    scale_ptr += layer * scale_layer
    keys_ptr += layer * k_layer
    values_ptr += layer * v_layer
    half = tl.arange(0, DIM // 2)[None, :]
    whole = tl.arange(0, DIM)[None, :]
    tokens = tl.load(tokens_ptr)  # not an argument: a recording is replayed with other lengths
    for block in range(tl.program_id(0), tl.cdiv(tokens, BLOCK), tl.num_programs(0)):
        token = block * BLOCK + tl.arange(0, BLOCK)
        source = tl.load(source_ptr + token, mask=token < tokens, other=-1)
        mask = (source >= 0)[:, None]
        page = (source // PAGE).to(tl.int64)[:, None]
        row = head * PAGE + (source % PAGE)[:, None]
        at = page * page_stride + row * DIM
        wide = token[:, None].to(tl.int64)
        k_to = head.to(tl.int64) * k_head + wide * k_token + half
        v_to = head.to(tl.int64) * v_head + wide * v_token + half
        angle = wide * DIM + half
        if SCALED:
            scale_at = page * scale_stride + key_scales + head * DIM + whole
            low, high = _scaled_halves(
                memory_ptr, scale_ptr, at + whole, scale_at, mask, BLOCK, DIM // 2
            )
            _store_rotated(low, high, cos_ptr, sin_ptr, keys_ptr, k_to, angle, mask, DIM // 2)
            scale_at = page * scale_stride + value_scales + row
            low, high = _scaled_halves(
                memory_ptr, scale_ptr, at + value_offset + whole, scale_at, mask, BLOCK, DIM // 2
            )
            kind = values_ptr.dtype.element_ty
            tl.store(values_ptr + v_to, low.to(kind), mask=mask)
            tl.store(values_ptr + v_to + DIM // 2, high.to(kind), mask=mask)
        else:
            _rotate(memory_ptr, cos_ptr, sin_ptr, keys_ptr, at + half, k_to, angle, mask, DIM // 2)
            _copy(memory_ptr, values_ptr, at + value_offset + half, v_to, mask, DIM // 2)


@triton.jit(do_not_specialize=["rows"])
def _place(
    q_ptr,
    k_ptr,
    v_ptr,
    row_ptr,
    cos_ptr,
    sin_ptr,
    keys_ptr,
    values_ptr,
    rotated_ptr,
    rows,
    heads,
    kv_heads,
    q_head,
    q_row,
    x_head,
    x_row,
    y_head,
    y_row,
    k_head,
    k_token,
    v_head,
    v_token,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    head = tl.program_id(1)
    half = tl.arange(0, DIM // 2)[None, :]
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (row < rows)[:, None]
    position = tl.load(row_ptr + row, mask=row < rows, other=0).to(tl.int64)[:, None]
    row = row.to(tl.int64)[:, None]
    wide = head.to(tl.int64)
    angle = position * DIM + half
    at = wide * q_head + row * q_row + half
    to = (row * heads + head) * DIM + half
    _rotate(q_ptr, cos_ptr, sin_ptr, rotated_ptr, at, to, angle, mask, DIM // 2)
    if head < kv_heads:
        at = wide * x_head + row * x_row + half
        to = wide * k_head + position * k_token + half
        _rotate(k_ptr, cos_ptr, sin_ptr, keys_ptr, at, to, angle, mask, DIM // 2)
        at = wide * y_head + row * y_row + half
        to = wide * v_head + position * v_token + half
        _copy(v_ptr, values_ptr, at, to, mask, DIM // 2)


def gather_layers(
    memory: torch.Tensor,
    source: torch.Tensor,
    tokens: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    stored: torch.dtype,
    page_tokens: int,
    key_bytes: int,
    programs: int,
) -> None:
    """Bring the stored KV of some layers to its places in a prompt, rotating the keys.

    Args:
        memory: uint8 `[layers, pages, page_bytes]`, as stored (`kvweave.kv.precision`): on the
            device, or page-locked on the host, where the kernel reads it over the bus.
        source: int32 `[most tokens]`, the stored token (page * page_tokens + offset) that goes to
            each position; -1: none.
        tokens: int32 `[1]`, how many positions there are, on the device.
        cos, sin: fp32 `[most tokens, head_dim]`.
        keys, values: `[layers, kv_heads, at least tokens, head_dim]`, dense in the last dimension;
            written.
        stored: dtype of the stored numbers; of one byte: with scales behind them.
        key_bytes: how much of a page is keys.
        programs: at most so many per layer and head; few are enough to fill a bus.
    """
    layers, kv_heads, most_tokens, dim = keys.shape
    block = 32
    numbers = memory.view(stored)
    scaled = stored.itemsize == 1
    scales = memory.view(torch.float32) if scaled else numbers
    # Of a page: numbers of the keys, their scales, numbers of the values, their scales.
    key_scales = kv_heads * page_tokens * dim // 4
    _gather[(min(programs, triton.cdiv(most_tokens, block)), kv_heads, layers)](
        numbers,
        scales,
        source,
        tokens,
        cos,
        sin,
        keys,
        values,
        numbers.stride(0),
        numbers.stride(1),
        key_bytes // stored.itemsize,
        scales.stride(0),
        scales.stride(1),
        key_scales,
        key_bytes // 4 + key_scales,
        keys.stride(0),
        values.stride(0),
        keys.stride(1),
        keys.stride(2),
        values.stride(1),
        values.stride(2),
        DIM=dim,
        PAGE=page_tokens,
        BLOCK=block,
        SCALED=scaled,
        num_warps=4,
    )


def place_rows(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rows: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """Rotate q and k by the positions `rows`, and put k and v at those positions.

    Args:
        q: `[heads, rows, head_dim]`; k, v: `[kv_heads, rows, head_dim]`, dense in the last
            dimension.
        rows: int32 `[rows]`.
        cos, sin: fp32 `[tokens, head_dim]`, of all positions.
        keys, values: `[kv_heads, tokens, head_dim]`; written at `rows`.

    Returns:
        q, rotated.
    """
    heads, count, dim = q.shape
    rotated = q.new_empty(count, heads, dim)
    block = 16
    _place[(triton.cdiv(count, block), heads)](
        q,
        k,
        v,
        rows,
        cos,
        sin,
        keys,
        values,
        rotated,
        count,
        heads,
        k.shape[0],
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        keys.stride(0),
        keys.stride(1),
        values.stride(0),
        values.stride(1),
        DIM=dim,
        BLOCK=block,
        num_warps=2,
    )
    return rotated.transpose(0, 1)
