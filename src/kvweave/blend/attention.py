"""Causal attention of a few rows over a long prompt, without paying for a dense mask."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from kvweave.blend.gpu import fused

#: Rows per block. Smaller blocks skip more masked keys, larger ones start fewer kernels.
ROWS_PER_BLOCK = 64


@dataclass(frozen=True, slots=True)
class _Block:
    rows: slice
    keys: int
    mask: torch.Tensor | None  # additive, [rows, keys]; None where every key is visible


class CausalRows:
    """The causal mask of the rows at `positions`, prepared once and used by every layer.

    Row r, at position p, sees exactly the keys 0..p. Rows are cut into blocks, and each block
    only reads keys up to its last position, so that sorted rows cost about half of a dense mask.

    Args:
        positions: int64 `[rows]`, ascending, each smaller than `bias`'s length if given.
        bias: fp32 `[keys]`, added to every score of that key: 0 leaves it as it is, `-inf` hides
            it (never a row's own); None: 0 for all.
    """

    def __init__(
        self, positions: torch.Tensor, dtype: torch.dtype, bias: torch.Tensor | None = None
    ) -> None:
        self._blocks: list[_Block] = []
        self._positions = positions
        self._bias = bias
        self._dtype = dtype
        if positions.is_cuda:
            self._short = positions.int()
        self._prepared = False

    def _prepare(self) -> None:
        """The blocks with their masks, where no kernel does without."""
        if self._prepared:
            return
        self._prepared = True
        positions, dtype = self._positions, self._dtype
        device = positions.device
        bias = None if self._bias is None else self._bias.to(dtype)
        on_host = positions.tolist()
        for start in range(0, len(on_host), ROWS_PER_BLOCK):
            rows = slice(start, min(start + ROWS_PER_BLOCK, len(on_host)))
            keys = on_host[rows.stop - 1] + 1
            if bias is None and on_host[rows.start] + 1 == keys:
                mask = None  # one row
            else:
                later = torch.arange(keys, device=device) > positions[rows, None]
                mask = torch.zeros(later.shape, dtype=dtype, device=device)
                if bias is not None:
                    mask += bias[:keys]
                mask.masked_fill_(later, float("-inf"))
            self._blocks.append(_Block(rows, keys, mask))

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Softmax attention of every row over the keys it may see.

        Args:
            q: `[heads, rows, head_dim]`, rotated.
            k, v: `[kv_heads, keys, head_dim]`, keys rotated; key i is position i. Each KV head
                serves `heads / kv_heads` neighbouring query heads.
            scale: factor on the scores.

        Returns:
            `[rows, heads * head_dim]`.
        """
        heads, rows, head_dim = q.shape
        if fused(q, head_dim):
            from kvweave.blend.gpu import attention

            return attention.attend(q, k, v, self._short, self._bias, scale)[0]
        self._prepare()
        grouped = heads != k.shape[0]
        if grouped and q.is_cuda:
            # On CUDA a mask together with grouped heads would fall back to the slow math kernel.
            k = k.repeat_interleave(heads // k.shape[0], dim=0)
            v = v.repeat_interleave(heads // v.shape[0], dim=0)
            grouped = False
        out = q.new_empty(rows, heads, head_dim)
        for block in self._blocks:
            mask = block.mask
            attended = F.scaled_dot_product_attention(
                q[None, :, block.rows],
                k[None, :, : block.keys],
                v[None, :, : block.keys],
                attn_mask=None if mask is None else mask[None, None],
                scale=scale,
                enable_gqa=grouped,
            )
            out[block.rows] = attended[0].transpose(0, 1)
        return out.view(rows, heads * head_dim)

    def attend_and_observe(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        scale: float,
        watched: Collection[int] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Like `attend`, and tells how strongly each key was attended to.

        watched: the query heads that count; None: all of them.

        Returns:
            The attention output `[rows, heads * head_dim]`, and fp32 `[keys]`: the largest
            attention probability that any watched head of any row gave to each key; of none, 0.
        """
        heads, rows, head_dim = q.shape
        kv_heads, keys, _ = k.shape
        if fused(q, head_dim) and (watched is None or watched):
            from kvweave.blend.gpu import attention

            out, sums = attention.attend(q, k, v, self._short, self._bias, scale)
            seen = attention.observe(q, k, self._short, self._bias, sums, scale, watched)
            return out, seen
        if watched is not None:
            return self.attend(q, k, v, scale), self.observe(q, k, scale, watched)
        self._prepare()
        out = q.new_empty(rows, heads, head_dim)
        strongest = torch.zeros(keys, dtype=torch.float32, device=q.device)
        for block in self._blocks:
            grouped = q[:, block.rows].reshape(kv_heads, -1, head_dim)
            scores = torch.matmul(grouped, k[:, : block.keys].transpose(1, 2)).float() * scale
            scores = scores.view(heads, -1, block.keys)
            if block.mask is not None:
                scores += block.mask
            probabilities = scores.softmax(dim=-1)
            seen = strongest[: block.keys]
            torch.maximum(seen, probabilities.amax(dim=(0, 1)), out=seen)
            weights = probabilities.to(v.dtype).view(kv_heads, -1, block.keys)
            attended = torch.matmul(weights, v[:, : block.keys]).view(heads, -1, head_dim)
            out[block.rows] = attended.transpose(0, 1)
        return out.view(rows, heads * head_dim), strongest

    def observe(
        self, q: torch.Tensor, k: torch.Tensor, scale: float, heads: Collection[int]
    ) -> torch.Tensor:
        """How strongly each key is attended to by a few heads.

        Args:
            q, k, scale: as for `attend`.
            heads: query heads; the others are left out.

        Returns:
            fp32 `[keys]`: the largest attention probability that any of the heads of any row gave
            to each key; of no heads, 0.
        """
        if not heads:
            return torch.zeros(k.shape[1], dtype=torch.float32, device=k.device)
        group = q.shape[0] // k.shape[0]
        # Stacked one by one, not indexed with a list, which would be copied to the device.
        queries = torch.stack([q[head] for head in heads])
        keys = torch.stack([k[head // group] for head in heads])
        scores = torch.matmul(queries, keys.transpose(1, 2)).float() * scale
        if self._bias is not None:
            scores += self._bias
        later = torch.arange(k.shape[1], device=k.device) > self._positions[:, None]
        return scores.masked_fill_(later, float("-inf")).softmax(dim=-1).amax(dim=(0, 1))


def full_causal_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    """Causal attention of every token over itself and all before it.

    Shapes as in `CausalRows.attend`, with as many rows as keys.
    """
    heads, rows, head_dim = q.shape
    attended = F.scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=True, scale=scale, enable_gqa=heads != k.shape[0]
    )
    return attended[0].transpose(0, 1).reshape(rows, heads * head_dim)
