"""vLLM's Llama-family models as blendable models: the worker's own modules, opened by layer."""

from __future__ import annotations

from typing import Any, Literal

import torch
from vllm.distributed import get_tp_group
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.model_executor.layers.rotary_embedding.linear_scaling_rope import (
    LinearScalingRotaryEmbedding,
)
from vllm.model_executor.layers.rotary_embedding.llama3_rope import Llama3RotaryEmbedding
from vllm.model_executor.layers.rotary_embedding.yarn_scaling_rope import (
    YaRNScalingRotaryEmbedding,
)

from kvweave.models import UNKNOWN, ReadingProfile, UnsupportedModel

SUPPORTED_ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)
# Their angles depend on the position alone; see `kvweave.models.llama`.
_SUPPORTED_ROPE = (
    RotaryEmbedding,
    LinearScalingRotaryEmbedding,
    Llama3RotaryEmbedding,
    YaRNScalingRotaryEmbedding,
)


class VllmModel:
    """A model of vLLM, opened layer by layer; see `kvweave.models.BlendableModel`.

    Under tensor parallelism it has this rank's heads; vLLM's own parallel layers exchange what has
    to be exchanged, so every rank must make the same calls.

    Args:
        model: what `model_runner.get_model()` gives.
        dtype: of activations and KV.
        max_rows: rows that go through an MLP at once; more are cut up, so that the memory needed
            is what vLLM has measured for its own steps.

    Raises:
        UnsupportedModel: another architecture, or a RoPE that is not understood.
    """

    def __init__(
        self,
        model: Any,
        dtype: torch.dtype,
        device: torch.device,
        *,
        max_rows: int,
        profile: ReadingProfile = UNKNOWN,
    ) -> None:
        name = type(model).__name__
        if name not in SUPPORTED_ARCHITECTURES:
            raise UnsupportedModel(
                f"architecture {name!r} is not supported on vLLM; "
                f"supported: {', '.join(SUPPORTED_ARCHITECTURES)}"
            )
        self._model = model
        self._decoder: Any = model.model
        self._blocks: list[Any] = list(self._decoder.layers)
        attention = self._blocks[0].self_attn
        self._rotary: Any = attention.rotary_emb
        self._max_rows = max_rows
        self.profile = profile
        self.layers: int = len(self._blocks)
        self.heads: int = attention.num_heads
        self.first_head: int = get_tp_group().rank_in_group * self.heads
        self.kv_heads: int = attention.num_kv_heads
        self.head_dim: int = attention.head_dim
        self.vocab_size: int = model.config.vocab_size
        self.scale: float = attention.scaling
        self.dtype = dtype
        self.device = device
        self._check_rope()

    def attention_layers(self) -> list[Any]:
        """vLLM's attention module of each layer: it knows the layer's KV pages."""
        return [block.self_attn.attn for block in self._blocks]

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self._decoder.embed_tokens(token_ids)

    def rope_table(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        table = self._rotary.cos_sin_cache[positions].float()
        cos, sin = table.chunk(2, dim=-1)
        return torch.cat([cos, cos], dim=-1), torch.cat([sin, sin], dim=-1)

    def qkv(
        self, layer: int, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        block = self._blocks[layer]
        attention = block.self_attn
        packed, _ = attention.qkv_proj(block.input_layernorm(hidden))
        q, k, v = packed.split([attention.q_size, attention.kv_size, attention.kv_size], dim=-1)
        q = q.unflatten(-1, (self.heads, self.head_dim))
        k = k.unflatten(-1, (self.kv_heads, self.head_dim))
        v = v.unflatten(-1, (self.kv_heads, self.head_dim))
        if hasattr(attention, "q_norm"):  # Qwen3
            q, k = attention.q_norm(q.contiguous()), attention.k_norm(k.contiguous())
        return q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)

    def finish(self, layer: int, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        if len(hidden) <= self._max_rows:
            return self._finish(layer, hidden, attended)
        pieces = zip(hidden.split(self._max_rows), attended.split(self._max_rows), strict=True)
        return torch.cat([self._finish(layer, h, a) for h, a in pieces])

    def combine_heads(self, values: torch.Tensor, how: Literal["max", "sum"]) -> torch.Tensor:
        group = get_tp_group()
        if group.world_size > 1:
            op = torch.distributed.ReduceOp.MAX if how == "max" else torch.distributed.ReduceOp.SUM
            torch.distributed.all_reduce(values, op, group=group.device_group)
        return values

    def any_rank(self, flag: bool) -> bool:
        group = get_tp_group()
        if group.world_size == 1:
            return flag
        anywhere = torch.tensor([flag], dtype=torch.int32)
        torch.distributed.all_reduce(
            anywhere, torch.distributed.ReduceOp.MAX, group=group.cpu_group
        )
        return bool(anywhere.item())

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.compute_logits(self._decoder.norm(hidden))

    def _finish(self, layer: int, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        block = self._blocks[layer]
        out, _ = block.self_attn.o_proj(attended)
        normed, residual = block.post_attention_layernorm(out, hidden)
        return residual + block.mlp(normed)

    def _check_rope(self) -> None:
        rotary = self._rotary
        if type(rotary) not in _SUPPORTED_ROPE:
            raise UnsupportedModel(
                f"RoPE {type(rotary).__name__} is not supported on vLLM; "
                f"supported: {', '.join(known.__name__ for known in _SUPPORTED_ROPE)}"
            )
        if not rotary.is_neox_style:
            raise UnsupportedModel("RoPE in interleaved (GPT-J) order is not supported")
        if rotary.rotary_dim != self.head_dim:
            raise UnsupportedModel(
                f"RoPE covers {rotary.rotary_dim} of {self.head_dim} dimensions of a head; "
                "partial RoPE is not supported"
            )
