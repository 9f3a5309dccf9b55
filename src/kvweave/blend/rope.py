"""Rotary position embedding, applied once, in fp32, with the model's own angles."""

from __future__ import annotations

import torch


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
