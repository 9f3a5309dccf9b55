"""The model as its authors wrote it: what blending is judged against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Prefill:
    """A full prefill.

    kv: `KVLayout.shape(tokens)`, keys rotated. logprobs: fp32 `[vocab]` after the last token.
    """

    kv: torch.Tensor
    logprobs: torch.Tensor


class ReferenceModel:
    """Runs full prefills with the library's own code, none of kvweave's."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    @torch.no_grad()
    def prefill(self, token_ids: Sequence[int], first_position: int = 0) -> Prefill:
        """A full prefill of these tokens, at `first_position` and the places after it."""
        device = self._model.device
        ids = torch.tensor(token_ids, dtype=torch.int64, device=device)[None]
        positions = torch.arange(first_position, first_position + len(token_ids), device=device)
        out = self._model(
            input_ids=ids, position_ids=positions[None], use_cache=True, logits_to_keep=1
        )
        layers = out.past_key_values.layers
        kv = torch.stack([torch.cat([layer.keys, layer.values]) for layer in layers])
        return Prefill(kv, out.logits[0, -1].float().log_softmax(dim=-1))
