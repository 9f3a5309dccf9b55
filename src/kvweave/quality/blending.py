"""One prompt blended apart from any engine: for checks, from memory of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvweave.blend import (
    CausalRows,
    Placement,
    PromptLayout,
    Selector,
    apply_rope,
    blended_prefill,
    kv_layout,
)
from kvweave.kv import ChunkCache, KVFormat, MemoryTier, chunk_ref, make_policy
from kvweave.models import BlendableModel
from kvweave.prompt import Prompt
from kvweave.reuse import ChunkJob, compute_chunk


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
        tokens, jobs = len(prompt), _jobs(prompt)
        room = sum(self._format.nbytes(len(job.ref.token_ids)) for job in jobs)
        tier = MemoryTier("cpu", room, make_policy("lru"), self._format, self._model.device)
        cache = ChunkCache([tier], self._format)
        for job in jobs:
            if not cache.contains(job.ref):
                cache.put(job.ref, *compute_chunk(self._model, cache, job))
        placements = self._place(prompt, jobs, cache)
        layout = PromptLayout(prompt.token_ids, placements, self._model.device)
        kv = torch.empty(
            kv_layout(self._model).shape(tokens), dtype=self._model.dtype, device=self._model.device
        )

        def keep(layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
            kv[layer, 0, :, :-1], kv[layer, 1, :, :-1] = keys, values

        try:
            blended_prefill(self._model, layout, selector, ratio, keep, overlap=False)
        finally:
            for placement in placements:
                placement.lease.release()
            cache.close()
        return Blended(kv[:, :, :, :-1], last_token(self._model, kv, prompt.token_ids[-1]))

    def _place(self, prompt: Prompt, jobs: list[ChunkJob], cache: ChunkCache) -> list[Placement]:
        placements: list[Placement] = []
        waiting = iter(jobs)
        position = 0
        exact = not prompt.prefix_ids
        for segment in prompt.segments:
            if segment.role != "fresh":
                lease = cache.lookup(next(waiting).ref).lease
                if lease is None:
                    raise RuntimeError("chunk KV that was just stored is not found again")
                is_chunk = segment.role == "chunk"
                placements.append(Placement(lease, position, exact or not is_chunk, is_chunk))
            exact = segment.role == "system"
            position += len(segment.token_ids)
        return placements


def _jobs(prompt: Prompt) -> list[ChunkJob]:
    """The system prefix and the chunks, in prompt order."""
    prefix = chunk_ref("check", "", (), prompt.prefix_ids) if prompt.prefix_ids else None
    jobs = []
    for segment in prompt.segments:
        if segment.role == "system" and prefix is not None:
            jobs.append(ChunkJob(prefix, None))
        elif segment.role == "chunk":
            ref = chunk_ref("check", "", prompt.prefix_ids, segment.token_ids)
            jobs.append(ChunkJob(ref, prefix))
    return jobs


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
