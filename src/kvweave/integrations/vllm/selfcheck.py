"""The check at start: KV computed and written by us, read back by vLLM's own forward pass."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from vllm.forward_context import set_forward_context
from vllm.v1.attention.backend import CommonAttentionMetadata

from kvweave.blend import run_layers
from kvweave.integrations.vllm.checks import UnsupportedSetup
from kvweave.integrations.vllm.model import VllmModel
from kvweave.integrations.vllm.pages import PageWriter

#: Largest relative difference (norms): rounding in fp32, and in narrower types.
_TOLERANCE = {torch.float32: 1e-3}
_NARROW_TOLERANCE = 0.05
_TOKENS = 40
_FIRST_BLOCK = 1  # vLLM keeps block 0 for itself


@torch.no_grad()
def check_pages(
    model: VllmModel,
    engine_model: Any,
    writer: PageWriter,
    vllm_config: Any,
    kv_cache_config: Any,
) -> None:
    """Compute a short prompt layer by layer, write its pages, and let vLLM go on from there.

    vLLM computes the last token over the pages that we wrote for the others; its hidden state must
    be the one that we get for that token ourselves. Layers, RoPE, page layout and attention are
    all wrong or all right together. Runs before the first request; every rank must call it.

    Raises:
        UnsupportedSetup: the two differ, or vLLM's attention cannot be called as expected.
    """
    ids = torch.arange(1, _TOKENS + 1, device=model.device) % model.vocab_size
    blocks = -(-_TOKENS // writer.block_tokens)
    block_ids = list(range(_FIRST_BLOCK, _FIRST_BLOCK + blocks))
    slots = writer.slots(block_ids, 0, _TOKENS, model.device)
    kept = slice(0, _TOKENS - 1)

    def write(layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        writer.write(layer, slots[kept], keys[:, kept], values[:, kept])

    expected = engine_model.model.norm(run_layers(model, ids, write)[-1:])
    try:
        found = _engine_step(engine_model, ids, block_ids, slots, vllm_config, kv_cache_config)
    except (TypeError, AttributeError, KeyError) as error:
        raise UnsupportedSetup(
            f"self-check failed: vLLM's attention cannot be called as expected ({error!r}); "
            "this backend is not understood, so nothing is served"
        ) from error
    difference = float((found.float() - expected.float()).norm() / expected.float().norm())
    tolerance = _TOLERANCE.get(model.dtype, _NARROW_TOLERANCE)
    if not difference < tolerance:  # also when it is NaN
        raise UnsupportedSetup(
            f"self-check failed: vLLM reads other KV from its pages than kvweave wrote (hidden "
            f"states differ by {difference:.2g}, more than {tolerance:g}); this model or attention "
            "backend is not understood, so nothing is served"
        )


def _engine_step(
    engine_model: Any,
    ids: torch.Tensor,
    block_ids: list[int],
    slots: torch.Tensor,
    vllm_config: Any,
    kv_cache_config: Any,
) -> torch.Tensor:
    """The last token of `ids` through vLLM's own forward pass: hidden state `[1, hidden]`."""
    device, tokens = ids.device, len(ids)
    group = kv_cache_config.kv_cache_groups[0]
    layers = vllm_config.compilation_config.static_forward_context
    backend = layers[group.layer_names[0]].get_attn_backend()
    builder = backend.get_builder_cls()(group.kv_cache_spec, group.layer_names, vllm_config, device)
    starts = torch.tensor([0, 1], dtype=torch.int32)
    lengths = torch.tensor([tokens], dtype=torch.int32)
    position = torch.tensor([tokens - 1], dtype=torch.int64, device=device)
    known = {field.name for field in fields(CommonAttentionMetadata)}
    values = {
        "query_start_loc": starts.to(device),
        "query_start_loc_cpu": starts,
        "seq_lens": lengths.to(device),
        "seq_lens_cpu": lengths,
        "_seq_lens_cpu": lengths,
        "_num_computed_tokens_cpu": lengths - 1,
        "seq_lens_cpu_upper_bound": lengths,
        "is_prefilling": torch.tensor([True]),
        "positions": position,
        "num_reqs": 1,
        "num_actual_tokens": 1,
        "max_query_len": 1,
        "max_seq_len": tokens,
        "block_table_tensor": torch.tensor([block_ids], dtype=torch.int32, device=device),
        "slot_mapping": slots[-1:],
        "causal": True,
    }
    common = CommonAttentionMetadata(**{k: v for k, v in values.items() if k in known})
    metadata = builder.build(common_prefix_len=0, common_attn_metadata=common)
    with set_forward_context(
        dict.fromkeys(group.layer_names, metadata),
        vllm_config,
        num_tokens=1,
        slot_mapping=dict.fromkeys(group.layer_names, slots[-1:]),
        skip_compiled=True,
    ):
        return engine_model(input_ids=ids[-1:], positions=position, intermediate_tensors=None)
