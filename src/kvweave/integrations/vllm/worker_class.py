"""vLLM's worker, with two things added: the model can be reached, and memory is set aside.

Set with `--worker-cls kvweave.integrations.vllm.worker_class.KvweaveWorker`.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import get_layers_from_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.attention import Attention
from vllm.platforms import current_platform

from kvweave.blend import workspace_bytes
from kvweave.config import GB
from kvweave.integrations.vllm.loaded import set_loaded_model
from kvweave.integrations.vllm.settings import settings_from

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as _Worker
else:
    from vllm.v1.worker.gpu_worker import Worker as _Worker

logger = init_logger("vllm.kvweave")


class KvweaveWorker(_Worker):
    """The platform's worker of vLLM, unpatched."""

    def load_model(self, **kwargs: Any) -> None:
        super().load_model(**kwargs)
        set_loaded_model(self.get_model())

    def determine_available_memory(self) -> int:
        """What vLLM may use for its pages, in bytes: without what chunk KV and blending need."""
        available = super().determine_available_memory()
        if current_platform.is_cpu():
            return available  # `VLLM_CPU_KVCACHE_SPACE` says what pages get; tiers are beside it
        pool = int(settings_from(self.vllm_config).kv_cache.gpu_kv_pool_gb * GB)
        layers = get_layers_from_vllm_config(self.vllm_config, Attention)
        attention = next(iter(layers.values()))
        model_config = self.vllm_config.model_config
        workspace = workspace_bytes(
            tokens=model_config.max_model_len,
            layers=len(layers),
            heads=attention.num_heads,
            kv_heads=attention.num_kv_heads,
            head_dim=attention.head_size,
            hidden=model_config.get_hidden_size(),
            intermediate=model_config.hf_text_config.intermediate_size,
            itemsize=torch.empty(0, dtype=model_config.dtype).element_size(),
            device=self.device,
        )
        logger.info(
            "kvweave sets aside %.2f GB for chunk KV and %.2f GB to blend in",
            pool / GB,
            workspace / GB,
        )
        return available - pool - workspace
