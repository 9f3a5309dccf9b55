"""From a configuration to a running engine: tiers, model, metrics."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
import transformers

from kvweave.blend import kv_layout
from kvweave.config import Config, cache_home
from kvweave.engine.embedded import EmbeddedEngine
from kvweave.engine.loading import LoadedModel, load_model
from kvweave.kv import KVFormat, TraceWriter, build_cache
from kvweave.metrics import Metrics
from kvweave.models.embedded import resolve_model
from kvweave.prompt import ChunkRegistry, PromptBuilder
from kvweave.quality import (
    Gate,
    GateResult,
    GateSettings,
    GateStore,
    QualityGuard,
    ReferenceModel,
    check_once,
)
from kvweave.reuse import selector_named

log = logging.getLogger(__name__)

#: Continuous batching is not a stable interface of transformers.
TESTED_TRANSFORMERS = "5.24"
#: Capacity of the page pool, in tokens, unless the configuration says otherwise.
DEFAULT_PAGES_TOKENS = 16384


def build_engine(
    config: Config, metrics: Metrics, *, accept_quality: bool = False
) -> EmbeddedEngine:
    """Load the configured model and put an engine around it; `start` is left to the caller.

    accept_quality: serve with reuse although the quality check fails.

    Raises:
        UnsupportedModel, OSError: the model cannot be served or read.
    """
    if not transformers.__version__.startswith(f"{TESTED_TRANSFORMERS}."):
        log.warning(
            "the embedded engine is tested with transformers %s, and this is %s",
            TESTED_TRANSFORMERS,
            transformers.__version__,
        )
    if config.engine.threads:
        torch.set_num_threads(config.engine.threads)
    model_id = config.model.model_id
    loaded = load_model(resolve_model(model_id), served_name(model_id), config.model.dtype)
    return engine_around(loaded, config, metrics, accept_quality=accept_quality)


def engine_around(
    loaded: LoadedModel, config: Config, metrics: Metrics, *, accept_quality: bool = False
) -> EmbeddedEngine:
    """An engine for a model that is loaded already."""
    guard = build_guard(loaded, config, metrics, accept_quality=accept_quality)
    kv, trace_file = config.kv_cache, config.metrics.trace_file
    fmt = KVFormat(kv_layout(loaded.blendable), kv.storage_dtype)
    longest = min(config.model.max_model_len, loaded.model.config.max_position_embeddings)
    return EmbeddedEngine(
        loaded,
        build_cache(config.kv_cache, fmt, loaded.blendable.device),
        metrics,
        max_model_len=longest,
        recompute_ratio=None if kv.recompute_ratio == "auto" else kv.recompute_ratio,
        min_recompute_ratio=kv.min_recompute_ratio,
        selector=kv.selector,
        overlap=kv.pipeline_overlap,
        plan_loads=kv.plan_loads,
        pages_tokens=config.engine.kv_pages_tokens or max(DEFAULT_PAGES_TOKENS, longest),
        max_batch_tokens=config.engine.max_batch_tokens,
        max_waiting=config.engine.max_waiting_requests,
        trace=TraceWriter(Path(trace_file)) if trace_file else None,
        guard=guard,
    )


def build_guard(
    loaded: LoadedModel, config: Config, metrics: Metrics, *, accept_quality: bool
) -> QualityGuard:
    """Ask the gate, if it is to be asked, and put the guard around its verdict."""
    kv, quality = config.kv_cache, config.quality
    ratio = kv.min_recompute_ratio if kv.recompute_ratio == "auto" else kv.recompute_ratio
    result = None
    if quality.gate:
        fmt = KVFormat(kv_layout(loaded.blendable), kv.storage_dtype)
        settings = GateSettings(
            loaded.identity, kv.storage_dtype, kv.selector, ratio, quality.max_kl
        )
        gate = Gate(
            loaded.blendable,
            ReferenceModel(loaded.model),
            PromptBuilder(loaded.tokenizer, registry=ChunkRegistry()),
            fmt,
            selector_named(kv.selector),
            settings,
        )
        store = GateStore(cache_home() / "gate")
        result = check_once(gate, store, settings, accept=accept_quality)
        _tell(result)
    return QualityGuard(
        metrics,
        ratio=ratio,
        max_kl=quality.max_kl,
        audit_fraction=quality.audit_fraction,
        gate=result,
    )


def _tell(result: GateResult) -> None:
    if result.passed:
        log.info("quality check passed: %s", result.checks[-1].summary())
    elif result.accepted:
        log.warning("SERVING WITH REUSE ALTHOUGH THE QUALITY CHECK FAILED: %s", result.failures())
    else:
        log.error(
            "QUALITY CHECK FAILED, every prompt is prefilled in full: %s. Raise "
            "kv_cache.recompute_ratio, or start with --accept-quality to serve with reuse anyway",
            result.failures(),
        )


def served_name(model_id: str) -> str:
    """What clients call the model: a hub name as it is, a folder by its last part."""
    return model_id.rstrip("/").rsplit("/", 1)[-1] if model_id.startswith(("/", ".")) else model_id
