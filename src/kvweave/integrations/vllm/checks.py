"""What has to hold before vLLM serves with kvweave; whatever does not is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import vllm

from kvweave.errors import KvweaveError

SUPPORTED_VERSIONS = ("0.26", "0.32")


class UnsupportedSetup(KvweaveError):
    """vLLM, or the way it is configured, is not understood; nothing is run on a guess."""


def check_version() -> None:
    """Raises UnsupportedSetup unless this vLLM is one that has been tested."""
    version = str(vllm.__version__)
    if not version.startswith(tuple(f"{known}." for known in SUPPORTED_VERSIONS)):
        raise UnsupportedSetup(
            f"vLLM {version} is not supported; supported: "
            + ", ".join(f"{known}.x" for known in SUPPORTED_VERSIONS)
        )


def check_config(vllm_config: Any, kv_cache_config: Any) -> None:
    """Raises UnsupportedSetup for settings under which chunk KV could not be right."""
    for problem in (problem(vllm_config, kv_cache_config) for problem in _PROBLEMS):
        if problem is not None:
            raise UnsupportedSetup(f"kvweave on vLLM does not support {problem}")


def _groups(vllm_config: Any, kv_cache_config: Any) -> str | None:
    groups = [] if kv_cache_config is None else kv_cache_config.kv_cache_groups
    if len(groups) > 1:
        kinds = sorted({type(group.kv_cache_spec).__name__ for group in groups})
        return f"hybrid models (layers with different KV: {', '.join(kinds)})"
    for group in groups:
        kind = type(group.kv_cache_spec).__name__
        if kind in ("MLAAttentionSpec", "SlidingWindowMLASpec"):
            return f"multi-head latent attention ({kind})"
        if kind != "FullAttentionSpec":
            return f"layers whose KV is a {kind}; only FullAttentionSpec is understood"
        if getattr(group.kv_cache_spec, "sliding_window", None):
            return "sliding-window attention"
        if getattr(group.kv_cache_spec, "attention_chunk_size", None):
            return "chunked local attention"
    return None


def _sliding_window(vllm_config: Any, kv_cache_config: Any) -> str | None:
    window = vllm_config.model_config.get_sliding_window()
    return None if window is None else f"sliding-window attention (window {window})"


def _kv_dtype(vllm_config: Any, kv_cache_config: Any) -> str | None:
    dtype = vllm_config.cache_config.cache_dtype
    same = str(vllm_config.model_config.dtype).removeprefix("torch.")
    if dtype in ("auto", same):
        return None
    return f"kv_cache_dtype {dtype!r}; leave it at 'auto'"


def _pipeline(vllm_config: Any, kv_cache_config: Any) -> str | None:
    size = vllm_config.parallel_config.pipeline_parallel_size
    return None if size == 1 else f"pipeline_parallel_size = {size}; use tensor_parallel_size"


def _context(vllm_config: Any, kv_cache_config: Any) -> str | None:
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        size = getattr(vllm_config.parallel_config, name, 1)
        if size != 1:
            return f"{name} = {size}"
    return None


def _speculation(vllm_config: Any, kv_cache_config: Any) -> str | None:
    return None if vllm_config.speculative_config is None else "speculative decoding"


def _lora(vllm_config: Any, kv_cache_config: Any) -> str | None:
    return None if vllm_config.lora_config is None else "LoRA adapters chosen per request"


def _multimodal(vllm_config: Any, kv_cache_config: Any) -> str | None:
    return "multimodal models" if vllm_config.model_config.is_multimodal_model else None


def _policy(vllm_config: Any, kv_cache_config: Any) -> str | None:
    policy = vllm_config.kv_transfer_config.kv_load_failure_policy
    if policy == "recompute":
        return None
    return (
        f"kv_load_failure_policy {policy!r}: requests would fail instead of being computed; "
        "set it to 'recompute' in --kv-transfer-config"
    )


_PROBLEMS: tuple[Callable[[Any, Any], str | None], ...] = (
    _groups,
    _sliding_window,
    _kv_dtype,
    _pipeline,
    _context,
    _speculation,
    _lora,
    _multimodal,
    _policy,
)
