"""What blending needs of a model: its layers in three steps, and its RoPE table."""

from __future__ import annotations

from typing import Literal, Protocol

import torch

from kvweave.errors import KvweaveError
from kvweave.models.profile import ReadingProfile


class UnsupportedModel(KvweaveError):
    """The model's architecture, layout or RoPE is not understood; nothing is run on a guess."""


class BlendableModel(Protocol):
    """A decoder-only transformer, opened up layer by layer.

    One layer is `qkv` -> rotate -> attend -> `finish`; rotating and attending are the caller's,
    since they are what blending changes. All tensors are on `device` in `dtype`.
    """

    layers: int
    heads: int
    first_head: int
    """Number of its first query head in the whole model: ranks have some heads each."""
    kv_heads: int
    head_dim: int
    vocab_size: int
    scale: float
    """Factor on the attention scores before softmax."""
    dtype: torch.dtype
    device: torch.device
    profile: ReadingProfile
    """What is known of how it reads."""

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """`[tokens]` int64 -> hidden states `[tokens, hidden]`."""

    def rope_table(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin, each fp32 `[tokens, head_dim]`, from the model's own rotary module."""

    def qkv(
        self, layer: int, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries `[heads, tokens, head_dim]`, keys and values `[kv_heads, tokens, head_dim]`.

        Queries and keys are before RoPE (but after query and key norms, where a model has them).
        """

    def finish(self, layer: int, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The rest of the layer: `attended` `[tokens, heads * head_dim]` -> `[tokens, hidden]`."""

    def combine_heads(self, values: torch.Tensor, how: Literal["max", "sum"]) -> torch.Tensor:
        """Combine what was found over the heads here with the heads that other ranks hold.

        The same on every rank afterwards, bit for bit. Without tensor parallelism: `values`.
        """

    def any_rank(self, flag: bool) -> bool:
        """Whether `flag` is true on any rank; every rank must ask."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Final norm and head: `[tokens, hidden]` -> `[tokens, vocab]`."""
