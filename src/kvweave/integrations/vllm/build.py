"""The worker's half, put together from the model that vLLM has loaded and its page memory."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import torch

from kvweave.blend import kv_layout, make_workspace
from kvweave.config import Config
from kvweave.integrations.vllm.loaded import loaded_model
from kvweave.integrations.vllm.model import VllmModel
from kvweave.integrations.vllm.pages import PageWriter
from kvweave.integrations.vllm.plugin import register
from kvweave.integrations.vllm.selfcheck import check_pages
from kvweave.integrations.vllm.worker import WorkerHalf
from kvweave.kv import KVFormat, Planner, TraceWriter, build_cache
from kvweave.models import ReadingProfile, find_heads, identity_of, sentence_ends
from kvweave.reuse import ChunkReuse, calibrate, warm_up

log = logging.getLogger("vllm.kvweave")


@torch.no_grad()
def build_worker(
    settings: Config,
    vllm_config: Any,
    kv_cache_config: Any,
    kv_caches: dict[str, torch.Tensor],
    *,
    rank: int,
) -> WorkerHalf:
    """Open the model up, check that pages are understood, and set up the tiers.

    Raises:
        UnsupportedModel, UnsupportedSetup: nothing is run on a guess.
    """
    register()
    started = time.perf_counter()
    engine_model = loaded_model()
    device = next(iter(kv_caches.values())).device
    world_size = vllm_config.parallel_config.tensor_parallel_size
    tokenizer = _tokenizer(vllm_config)
    model = VllmModel(
        engine_model,
        vllm_config.model_config.dtype,
        device,
        max_rows=vllm_config.scheduler_config.max_num_batched_tokens,
        profile=_profile(vllm_config.model_config, tokenizer),
    )
    block_tokens = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size
    writer = PageWriter(model.attention_layers(), kv_caches, block_tokens)
    check_pages(model, engine_model, writer, vllm_config, kv_cache_config)
    identity = identity_of(
        engine_model.state_dict(),
        vllm_config.model_config.hf_config,
        model.dtype,
        tokenizer,
        part=f"vllm rank {rank} of {world_size}",
    )
    fmt = KVFormat(kv_layout(model), settings.kv_cache.storage_dtype)
    cache = build_cache(settings.kv_cache, fmt, device)
    planner = Planner(overlap=settings.kv_cache.pipeline_overlap)
    trace_file = settings.metrics.trace_file
    longest = vllm_config.model_config.max_model_len
    workspace = make_workspace(model, fmt, cache.memories(), longest, record=world_size == 1)
    reuse = ChunkReuse(
        model,
        f"{identity}:{cache.storage_dtype}",
        cache,
        planner if settings.kv_cache.plan_loads else None,
        overlap=settings.kv_cache.pipeline_overlap,
        workspace=workspace,
        trace=TraceWriter(Path(trace_file)) if trace_file and rank == 0 else None,
    )
    if settings.kv_cache.plan_loads:
        calibrate(reuse, model, cache, planner, longest)
    if workspace is not None and workspace.memories:
        warm_up(model, cache, workspace, settings.kv_cache.selector, longest)
    log.info("kvweave is ready after %.1f s", time.perf_counter() - started)
    return WorkerHalf(model, reuse, cache, planner, writer, settings, rank=rank, ranks=world_size)


def _profile(model_config: Any, tokenizer: Any) -> ReadingProfile:
    config = model_config.hf_text_config
    heads = find_heads(model_config.model, config.num_hidden_layers, config.num_attention_heads)
    if heads is None:
        log.info(
            "it is not known which heads of this model retrieve, so all in the middle are watched; "
            "`kvweave profile %s` finds out, once",
            model_config.model,
        )
    return ReadingProfile(heads, None if tokenizer is None else sentence_ends(tokenizer))


def _tokenizer(vllm_config: Any) -> Any:
    if vllm_config.model_config.skip_tokenizer_init:
        return None
    from vllm.tokenizers import cached_tokenizer_from_config

    return cached_tokenizer_from_config(vllm_config.model_config)
