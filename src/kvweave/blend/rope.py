"""Rotary position embedding, applied once, in fp32, with the model's own angles."""

from __future__ import annotations

import torch

from kvweave.blend.gpu import fused


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate `x` `[heads, tokens, head_dim]` by the angles of its tokens' positions.

    cos, sin: fp32 `[tokens, head_dim]` from `BlendableModel.rope_table`, in the half-split order
    of Llama (RoFormer, arXiv 2104.09864; dimension i pairs with i + head_dim / 2). Computed in
    fp32, returned in the dtype of `x`.
    """
    half = x.shape[-1] // 2
    x32 = x.float()
    rotated = torch.empty_like(x32)
    torch.mul(x32[..., half:], sin[:, :half], out=rotated[..., :half]).neg_()
    torch.mul(x32[..., :half], sin[:, half:], out=rotated[..., half:])
    return rotated.addcmul_(x32, cos).to(x.dtype)


class RowPositions:
    """Positions of the rows that go through a model, and what is needed to put them there.

    Args:
        positions: int64 `[rows]`.
        cos, sin: fp32 `[tokens, head_dim]`, of all positions of the prompt.
    """

    def __init__(self, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
        self.positions = positions
        self._all = cos, sin
        if fused(positions, cos.shape[1]):
            self._short = positions.int()
        else:
            self._cos, self._sin = cos[positions], sin[positions]

    def apart(self) -> RowPositions:
        """Neighbouring rows as a text of their own, from 0 on: distances are all that counts."""
        return RowPositions(self.positions - self.positions[:1], *self._all)

    def place(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        """Rotate the rows' queries and keys, and put their keys and values at their positions.

        Args:
            q: `[heads, rows, head_dim]`; k, v: `[kv_heads, rows, head_dim]`, before RoPE.
            keys, values: `[kv_heads, tokens, head_dim]`, written.

        Returns:
            q, rotated.
        """
        if fused(q, q.shape[-1]):
            from kvweave.blend.gpu.rotation import place_rows

            return place_rows(q, k, v, self._short, *self._all, keys, values)
        keys[:, self.positions] = apply_rope(k, self._cos, self._sin)
        values[:, self.positions] = v
        return apply_rope(q, self._cos, self._sin)
