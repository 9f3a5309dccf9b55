"""One prompt blended apart from any engine: for checks, from memory of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvweave.blend import CausalRows, Selector, apply_rope, blended_prefill, kv_layout
from kvweave.kv import ChunkCache, KVFormat, MemoryTier, make_policy
from kvweave.models import BlendableModel
from kvweave.prompt import Prompt
from kvweave.reuse import all_cached, parts

_IDENTITY = "check"  # the cache lives as long as one prompt


@dataclass(frozen=True, slots=True)
class Blended:
    """Like `Prefill`, but of a blended prefill: the KV of all tokens but the last."""

    kv: torch.Tensor
    logprobs: torch.Tensor


class PromptBlender:
    """Blends prompts whose chunks have all been seen, through a cache that holds one prompt.

    Chunk KV takes the whole way that it takes in an engine: computed after its prefix, stored in
    the storage dtype, leased, rotated to its place, and in part computed again.
    """

    def __init__(self, model: BlendableModel, fmt: KVFormat) -> None:
        self._model = model
        self._format = fmt

    def blend(self, prompt: Prompt, selector: Selector, ratio: float) -> Blended:
        """Blend `prompt` with all its chunks from the cache."""
        tokens = len(prompt)
        refs = {ref for part in parts(prompt, _IDENTITY) for ref in (part.job.ref, part.job.prefix)}
        room = sum(self._format.nbytes(len(ref.token_ids)) for ref in refs if ref is not None)
        tier = MemoryTier("cpu", room, make_policy("lru"), self._format, self._model.device)
        cache = ChunkCache([tier], self._format)
        kv = torch.empty(
            kv_layout(self._model).shape(tokens), dtype=self._model.dtype, device=self._model.device
        )

        def keep(layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
            kv[layer, 0, :, :-1], kv[layer, 1, :, :-1] = keys, values

        try:
            with all_cached(self._model, cache, prompt, _IDENTITY) as layout:
                blended_prefill(self._model, layout, selector, ratio, keep, overlap=False)
        finally:
            cache.close()
        return Blended(kv[:, :, :, :-1], last_token(self._model, kv, prompt.token_ids[-1]))


@torch.no_grad()
def last_token(model: BlendableModel, kv: torch.Tensor, token_id: int) -> torch.Tensor:
    """fp32 log-probabilities `[vocab]` after `token_id`, computed over the KV of all before it.

    kv: `KVLayout.shape(tokens)`, keys rotated; its last token is filled in.
    """
    at = kv.shape[3] - 1
    position = torch.tensor([at], device=model.device)
    cos, sin = model.rope_table(position)
    causal = CausalRows(position, model.dtype)
    hidden = model.embed(torch.tensor([token_id], device=model.device))
    for layer in range(model.layers):
        q, k, v = model.qkv(layer, hidden)
        kv[layer, 0, :, at:], kv[layer, 1, :, at:] = apply_rope(k, cos, sin), v
        q = apply_rope(q, cos, sin)
        attended = causal.attend(q, kv[layer, 0], kv[layer, 1], model.scale)
        hidden = model.finish(layer, hidden, attended)
    return model.logits(hidden)[0].float().log_softmax(dim=-1)
