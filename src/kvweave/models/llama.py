"""Llama-family models of `transformers` (Llama, Mistral, Qwen2, Qwen3) as blendable models."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn
from transformers import PreTrainedModel

from kvweave.models.base import UnsupportedModel
from kvweave.models.profile import UNKNOWN, ReadingProfile

SUPPORTED_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3")
# Their cos and sin depend on the position alone. "dynamic" and "longrope" also depend on how long
# the prompt is, so KV computed in one prompt would be wrong in another.
SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3", "yarn")


class LlamaFamily:
    """Opens a `transformers` Llama-family causal model layer by layer; see `BlendableModel`.

    The weights stay the model's own modules: nothing is copied.

    Args:
        profile: what is known of how the model reads.

    Raises:
        UnsupportedModel: another architecture, sliding-window attention, or a RoPE whose angles
            depend on the length of the prompt.
    """

    def __init__(self, model: PreTrainedModel, profile: ReadingProfile = UNKNOWN) -> None:
        config: Any = model.config
        _check_supported(config)
        self._model = model
        self.profile = profile
        self._decoder: Any = model.get_decoder()
        self._blocks: list[Any] = list(self._decoder.layers)
        self._head: nn.Module = model.get_output_embeddings()
        attention = self._blocks[0].self_attn
        self.layers: int = config.num_hidden_layers
        self.heads: int = config.num_attention_heads
        self.first_head = 0
        self.kv_heads: int = config.num_key_value_heads
        self.head_dim: int = attention.head_dim
        self.vocab_size: int = config.vocab_size
        self.scale: float = attention.scaling
        self.dtype: torch.dtype = model.dtype
        self.device: torch.device = model.device
        if len(self._blocks) != self.layers:
            raise UnsupportedModel(
                f"the model has {len(self._blocks)} layers but its config says {self.layers}"
            )
        cos, _ = self.rope_table(torch.zeros(1, dtype=torch.int64, device=self.device))
        if cos.shape != (1, self.head_dim):
            raise UnsupportedModel(
                f"RoPE covers {cos.shape[-1]} of {self.head_dim} dimensions of a head; "
                "partial RoPE is not supported"
            )

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        return self._decoder.embed_tokens(token_ids)

    def rope_table(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        like = torch.empty(0, dtype=torch.float32, device=self.device)
        cos, sin = self._decoder.rotary_emb(like, positions[None])
        return cos[0], sin[0]

    def qkv(
        self, layer: int, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        block = self._blocks[layer]
        attention = block.self_attn
        normed = block.input_layernorm(hidden)
        q = attention.q_proj(normed).view(-1, self.heads, self.head_dim)
        k = attention.k_proj(normed).view(-1, self.kv_heads, self.head_dim)
        v = attention.v_proj(normed).view(-1, self.kv_heads, self.head_dim)
        if hasattr(attention, "q_norm"):  # Qwen3
            q, k = attention.q_norm(q), attention.k_norm(k)
        return q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)

    def finish(self, layer: int, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        block = self._blocks[layer]
        hidden = hidden + block.self_attn.o_proj(attended)
        return hidden + block.mlp(block.post_attention_layernorm(hidden))

    def combine_heads(self, values: torch.Tensor, how: Literal["max", "sum"]) -> torch.Tensor:
        return values

    def any_rank(self, flag: bool) -> bool:
        return flag

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._head(self._decoder.norm(hidden))


def _check_supported(config: Any) -> None:
    if config.model_type not in SUPPORTED_MODEL_TYPES:
        raise UnsupportedModel(
            f"architecture {config.model_type!r} is not supported; "
            f"supported: {', '.join(SUPPORTED_MODEL_TYPES)}"
        )
    layer_types = set(getattr(config, "layer_types", None) or ())
    sliding = getattr(config, "sliding_window", None) is not None
    if getattr(config, "use_sliding_window", True) and sliding and not layer_types:
        layer_types.add("sliding_attention")
    if layer_types - {"full_attention"}:
        raise UnsupportedModel(
            f"{config.model_type!r} with {', '.join(sorted(layer_types))} layers is not supported; "
            "every layer must attend to the whole prompt"
        )
    rope_type = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope_type not in SUPPORTED_ROPE_TYPES:
        raise UnsupportedModel(
            f"RoPE type {rope_type!r} is not supported (its angles depend on more than the "
            f"position); supported: {', '.join(SUPPORTED_ROPE_TYPES)}"
        )
