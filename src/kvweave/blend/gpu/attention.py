"""Causal attention of scattered rows over all keys, as Triton kernels.

One program takes neighbouring rows, in all the query heads that share a KV head, and walks over the
keys that any of them may see (FlashAttention-2, Dao 2023). Rows are sorted by position, so only the
last stretch of that walk needs a mask. Few rows over many keys are split along the keys and
combined afterwards (Flash-Decoding, Dao et al. 2023).
"""

from __future__ import annotations

from collections.abc import Collection

import torch
import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
#: In place of minus infinity: differences of it are numbers, and `exp2` of it is 0.
NEVER: tl.constexpr = tl.constexpr(-1e30)
#: Programs that keep a large GPU busy; fewer are split along the keys.
_ENOUGH_PROGRAMS = 256
_MIN_KEYS_PER_SPLIT = 512
_FEW_ROWS = 4096


@triton.jit
def _fold(
    best,
    total,
    acc,
    q,
    k_ptr,
    v_ptr,
    bias_ptr,
    key,
    end,
    position,
    k_key,
    v_key,
    scale_log2,
    DIM: tl.constexpr,
    MASKED: tl.constexpr,
    BIASED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A running softmax (highest score, sum, weighted values) with the keys `key` folded in.

    A row that has seen only hidden keys so far has collected noise; the first key that it may see
    shrinks that to nothing.
    """
    dim = tl.arange(0, DIM)
    k_at = k_ptr + key[None, :].to(tl.int64) * k_key + dim[:, None]
    v_at = v_ptr + key[:, None].to(tl.int64) * v_key + dim[None, :]
    in_keys = key < end
    if MASKED:
        k = tl.load(k_at, mask=in_keys[None, :], other=0.0)
        v = tl.load(v_at, mask=in_keys[:, None], other=0.0)
    else:
        k = tl.load(k_at)
        v = tl.load(v_at)
    scores = tl.dot(q, k, input_precision=PRECISION) * scale_log2
    if BIASED:
        if MASKED:
            bias = tl.load(bias_ptr + key, mask=in_keys, other=0.0)
        else:
            bias = tl.load(bias_ptr + key)
        scores += tl.maximum(bias * LOG2E, NEVER)[None, :]
    if MASKED:
        seen = (key[None, :] <= position[:, None]) & in_keys[None, :]
        scores = tl.where(seen, scores, NEVER)
    higher = tl.maximum(best, tl.max(scores, 1))
    weights = tl.exp2(scores - higher[:, None])
    shrink = tl.exp2(best - higher)
    total = total * shrink + tl.sum(weights, 1)
    acc = acc * shrink[:, None]
    acc = tl.dot(weights.to(v.dtype), v, acc, input_precision=PRECISION)
    return higher, total, acc


@triton.jit
def _keys_per_split(position_ptr, rows, splits, BLOCK_KEYS: tl.constexpr):
    """All splits are as long: short rows are in the first alone, and need not be combined."""
    longest = tl.load(position_ptr + rows - 1) + 1
    return tl.cdiv(tl.cdiv(longest, BLOCK_KEYS), splits) * BLOCK_KEYS


# Lengths differ from prompt to prompt: kernels are not compiled anew for their values.
@triton.jit(do_not_specialize=["rows"])
def _attend(
    q_ptr,
    k_ptr,
    v_ptr,
    position_ptr,
    bias_ptr,
    out_ptr,
    lse_ptr,
    partial_ptr,
    partial_lse_ptr,
    scale_log2,
    rows,
    q_head,
    q_row,
    k_head,
    k_key,
    v_head,
    v_key,
    heads,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BIASED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    # Blocks at the end see most keys: they start first.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    # A row, and a head of the group: neighbours in a block are the heads of one row.
    each = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    row = each // GROUP
    head = kv_head * GROUP + each % GROUP
    dim = tl.arange(0, DIM)
    in_rows = row < rows
    position = tl.load(position_ptr + row, mask=in_rows, other=-1)
    last = tl.max(position, 0) + 1
    first = tl.min(tl.where(in_rows, position, 2147483647), 0) + 1  # all rows see the keys before
    per_split = _keys_per_split(position_ptr, rows, tl.num_programs(2), BLOCK_KEYS)
    begin = split * per_split
    if begin < last:
        q = tl.load(
            q_ptr + (head.to(tl.int64) * q_head + row.to(tl.int64) * q_row)[:, None] + dim[None, :],
            mask=in_rows[:, None],
            other=0.0,
        )
        end = tl.minimum(begin + per_split, last)
        plain = tl.minimum(tl.maximum(first // BLOCK_KEYS * BLOCK_KEYS, begin), end)
        k_ptr += kv_head.to(tl.int64) * k_head
        v_ptr += kv_head.to(tl.int64) * v_head
        best = tl.full([BLOCK_ROWS], NEVER, tl.float32)
        total = tl.zeros([BLOCK_ROWS], tl.float32)
        acc = tl.zeros([BLOCK_ROWS, DIM], tl.float32)
        for start in range(begin, plain, BLOCK_KEYS):
            key = start + tl.arange(0, BLOCK_KEYS)
            best, total, acc = _fold(
                best,
                total,
                acc,
                q,
                k_ptr,
                v_ptr,
                bias_ptr,
                key,
                end,
                position,
                k_key,
                v_key,
                scale_log2,
                DIM,
                False,
                BIASED,
                PRECISION,
            )
        for start in range(plain, end, BLOCK_KEYS):
            key = start + tl.arange(0, BLOCK_KEYS)
            best, total, acc = _fold(
                best,
                total,
                acc,
                q,
                k_ptr,
                v_ptr,
                bias_ptr,
                key,
                end,
                position,
                k_key,
                v_key,
                scale_log2,
                DIM,
                True,
                BIASED,
                PRECISION,
            )
        # A row that sees no key of this split has noise, and `NEVER` for its weight.
        out = acc / total[:, None]
        lse = best + tl.log2(total)
        if last <= per_split:
            at = ((row.to(tl.int64) * heads + head) * DIM)[:, None] + dim[None, :]
            tl.store(out_ptr + at, out.to(out_ptr.dtype.element_ty), mask=in_rows[:, None])
            tl.store(lse_ptr + head * rows + row, lse, mask=in_rows)
        else:
            slot = ((split * heads + head) * rows + row).to(tl.int64)
            at = slot[:, None] * DIM + dim[None, :]
            tl.store(partial_ptr + at, out, mask=in_rows[:, None])
            tl.store(partial_lse_ptr + slot, lse, mask=in_rows)


@triton.jit(do_not_specialize=["rows"])
def _combine(
    partial_ptr,
    partial_lse_ptr,
    position_ptr,
    out_ptr,
    lse_ptr,
    rows,
    heads,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    row = tl.program_id(0)
    head = tl.program_id(1)
    # How `_attend` has split the block that this row and head were in.
    per_split = _keys_per_split(position_ptr, rows, SPLITS, BLOCK_KEYS)
    block = (row * GROUP + head % GROUP) // BLOCK_ROWS
    last_row = tl.minimum(((block + 1) * BLOCK_ROWS - 1) // GROUP, rows - 1)
    last = tl.load(position_ptr + last_row) + 1
    if last > per_split:
        split = tl.arange(0, SPLITS)
        used = split < tl.cdiv(last, per_split)
        dim = tl.arange(0, DIM)
        slot = ((split * heads + head) * rows + row).to(tl.int64)
        lse = tl.load(partial_lse_ptr + slot, mask=used, other=float("-inf"))
        best = tl.max(lse, 0)
        weights = tl.exp2(lse - best)
        total = tl.sum(weights, 0)
        parts = tl.load(partial_ptr + slot[:, None] * DIM + dim[None, :], mask=used[:, None])
        parts = tl.where(used[:, None], parts, 0.0)
        out = tl.sum(parts * weights[:, None], 0) / total
        at = out_ptr + (row.to(tl.int64) * heads + head) * DIM + dim
        tl.store(at, out.to(out_ptr.dtype.element_ty))
        tl.store(lse_ptr + head * rows + row, best + tl.log2(total))


@triton.jit(do_not_specialize=["rows", "keys", "first_head"])
def _observe(
    q_ptr,
    k_ptr,
    position_ptr,
    bias_ptr,
    lse_ptr,
    seen_ptr,
    scale_log2,
    rows,
    keys,
    first_head,
    q_head,
    q_row,
    k_head,
    k_key,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BIASED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    head = first_head + tl.program_id(1)
    kv_head = head // GROUP
    key = tl.program_id(0) * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS)
    dim = tl.arange(0, DIM)
    in_keys = key < keys
    last = tl.load(position_ptr + rows - 1)  # rows are in order of their positions
    exists = in_keys & (key <= last)
    k = tl.load(
        k_ptr + kv_head.to(tl.int64) * k_head + key[None, :].to(tl.int64) * k_key + dim[:, None],
        mask=exists[None, :],
        other=0.0,
    )
    bias = tl.zeros([BLOCK_KEYS], tl.float32)
    if BIASED:
        bias = tl.load(bias_ptr + key, mask=in_keys, other=0.0) * LOG2E
    strongest = tl.zeros([BLOCK_KEYS], tl.float32)
    needed = tl.where(tl.program_id(0) * BLOCK_KEYS <= last, rows, 0)
    for start in range(0, needed, BLOCK_ROWS):
        row = start + tl.arange(0, BLOCK_ROWS)
        in_rows = row < rows
        position = tl.load(position_ptr + row, mask=in_rows, other=-1)
        seen = (key[None, :] <= position[:, None]) & exists[None, :]
        q = tl.load(
            q_ptr + head.to(tl.int64) * q_head + row[:, None].to(tl.int64) * q_row + dim[None, :],
            mask=in_rows[:, None],
            other=0.0,
        )
        lse = tl.load(lse_ptr + head * rows + row, mask=in_rows, other=0.0)
        scores = tl.dot(q, k, input_precision=PRECISION) * scale_log2 + bias[None, :]
        weights = tl.where(seen, tl.exp2(scores - lse[:, None]), 0.0)
        strongest = tl.maximum(strongest, tl.max(weights, 0))
    tl.store(seen_ptr + tl.program_id(1) * keys + key, strongest, mask=in_keys)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    positions: torch.Tensor,
    bias: torch.Tensor | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of every row over the keys up to its position.

    Args:
        q: `[heads, rows, head_dim]`; k, v: `[kv_heads, keys, head_dim]`. The last dimension is
            dense, the others may be strided.
        positions: int32 `[rows]`, ascending.
        bias: fp32 `[keys]`, added to the scores of each key, or None; `-inf` hides a key.

    Returns:
        `[rows, heads * head_dim]`, and the row sums as fp32 log2 `[heads, rows]`.
    """
    heads, rows, dim = q.shape
    kv_heads, keys, _ = k.shape
    group = heads // kv_heads
    wide = q.dtype == torch.float32
    block_rows, block_keys = (32, 32) if wide else (64, 64)
    blocks = triton.cdiv(rows * group, block_rows)
    # Two splits even out that later rows see more keys; for many rows there are blocks enough.
    splits = 2 if rows <= _FEW_ROWS and keys >= 2 * _MIN_KEYS_PER_SPLIT else 1
    while (
        splits < 16
        and blocks * kv_heads * splits < _ENOUGH_PROGRAMS
        and keys >= 2 * splits * _MIN_KEYS_PER_SPLIT
    ):
        splits *= 2
    out = q.new_empty(rows, heads * dim)
    lse = q.new_empty(heads, rows, dtype=torch.float32)
    partial = partial_lse = lse
    if splits > 1:
        partial = q.new_empty(splits, heads, rows, dim, dtype=torch.float32)
        partial_lse = q.new_empty(splits, heads, rows, dtype=torch.float32)
    _attend[(blocks, kv_heads, splits)](
        q,
        k,
        v,
        positions,
        positions if bias is None else bias,
        out,
        lse,
        partial,
        partial_lse,
        scale * LOG2E.value,
        rows,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        heads,
        GROUP=group,
        DIM=dim,
        BLOCK_ROWS=block_rows,
        BLOCK_KEYS=block_keys,
        BIASED=bias is not None,
        PRECISION="ieee" if wide else "tf32",
        num_warps=4,
        num_stages=2 if wide else 3,
    )
    if splits > 1:
        _combine[(rows, heads)](
            partial,
            partial_lse,
            positions,
            out,
            lse,
            rows,
            heads,
            GROUP=group,
            DIM=dim,
            BLOCK_ROWS=block_rows,
            BLOCK_KEYS=block_keys,
            SPLITS=splits,
            num_warps=1,
        )
    return out, lse


def observe(
    q: torch.Tensor,
    k: torch.Tensor,
    positions: torch.Tensor,
    bias: torch.Tensor | None,
    lse: torch.Tensor,
    scale: float,
    watched: Collection[int] | None = None,
) -> torch.Tensor:
    """The largest attention probability that a head of any row gave to each key: fp32 `[keys]`.

    Arguments as for `attend`, with the row sums that it returned.

    watched: the query heads that count, one at least; None: all of them.
    """
    heads, rows, dim = q.shape
    kv_heads, keys, _ = k.shape
    wide = q.dtype == torch.float32
    block_rows, block_keys = (32, 32) if wide else (64, 64)
    runs = [(0, heads)] if watched is None else [(head, 1) for head in watched]
    seen = q.new_empty(sum(count for _, count in runs), keys, dtype=torch.float32)
    for i, (first, count) in enumerate(runs):
        _observe[(triton.cdiv(keys, block_keys), count)](
            q,
            k,
            positions,
            positions if bias is None else bias,
            lse,
            seen[i:],
            scale * LOG2E.value,
            rows,
            keys,
            first,
            q.stride(0),
            q.stride(1),
            k.stride(0),
            k.stride(1),
            GROUP=heads // kv_heads,
            DIM=dim,
            BLOCK_ROWS=block_rows,
            BLOCK_KEYS=block_keys,
            BIASED=bias is not None,
            PRECISION="ieee" if wide else "tf32",
            num_warps=4,
            num_stages=2,
        )
    return seen.amax(dim=0)
