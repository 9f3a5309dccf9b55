"""A full prefill of a prompt and its answer, in steps so small that requests can pass between."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch

from kvweave.blend import CausalRows, apply_rope
from kvweave.models import BlendableModel

#: Tokens that go through one layer in one step: what a request that comes may have to wait for.
ROWS_PER_STEP = 128


@torch.no_grad()
def forced_logprobs(
    model: BlendableModel, token_ids: Sequence[int], prompt_tokens: int
) -> Generator[None, None, torch.Tensor]:
    """What a full prefill expects at each place of an answer, given the answer up to there.

    A generator that yields after every step and returns, on the CPU, fp32 log-probabilities
    `[len(token_ids) - prompt_tokens, vocab]`: row i is for the answer's token i. Nothing cached is
    used. It holds the hidden states of all tokens and the KV of one layer.

    Args:
        token_ids: the prompt and, behind it, the answer.
        prompt_tokens: how many of them are the prompt.
    """
    tokens = len(token_ids) - 1  # the last one's own logits are beyond the answer
    ids = torch.tensor(token_ids[:tokens], dtype=torch.int64, device=model.device)
    positions = torch.arange(tokens, device=model.device)
    cos, sin = model.rope_table(positions)
    first = prompt_tokens - 1
    blocks = [slice(at, min(at + ROWS_PER_STEP, tokens)) for at in range(0, tokens, ROWS_PER_STEP)]
    causal = [CausalRows(positions[block], model.dtype) for block in blocks]
    hidden = model.embed(ids)
    shape = (model.kv_heads, tokens, model.head_dim)
    keys = torch.empty(shape, dtype=model.dtype, device=model.device)
    values = torch.empty_like(keys)
    for layer in range(model.layers):
        for block, rows in zip(blocks, causal, strict=True):
            q, keys[:, block], values[:, block] = model.qkv(layer, hidden[block])
            q = apply_rope(q, cos[block], sin[block])
            keys[:, block] = apply_rope(keys[:, block], cos[block], sin[block])
            if layer + 1 < model.layers or block.stop > first:
                attended = rows.attend(
                    q, keys[:, : block.stop], values[:, : block.stop], model.scale
                )
                hidden[block] = model.finish(layer, hidden[block], attended)
            yield
    return model.logits(hidden[first:]).float().log_softmax(dim=-1).cpu()
