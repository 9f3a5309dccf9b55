"""The KV connector that vLLM loads: one class, of which it makes one half per process.

Set with `--kv-transfer-config '{"kv_connector": "KvweaveConnector",
"kv_connector_module_path": "kvweave.integrations.vllm.connector", "kv_role": "kv_both",
"kv_load_failure_policy": "recompute"}'`.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from kvweave.integrations.vllm.build import build_worker
from kvweave.integrations.vllm.checks import check_config, check_version
from kvweave.integrations.vllm.messages import StepNews, StepOrders
from kvweave.integrations.vllm.scheduler import SchedulerHalf
from kvweave.integrations.vllm.settings import settings_from
from kvweave.integrations.vllm.stats import KvweavePromMetrics, KvweaveStats
from kvweave.integrations.vllm.worker import WorkerHalf


class KvweaveConnector(KVConnectorBase_V1):
    """Fills prompts that carry chunks with cached and blended KV.

    Raises, at start:
        UnsupportedSetup, UnsupportedModel, ConfigError: named, with what is supported.
    """

    def __init__(
        self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any = None
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        _log_like_vllm()
        check_version()
        check_config(vllm_config, kv_cache_config)
        self._settings = settings_from(vllm_config)
        self._scheduler: SchedulerHalf | None = None
        self._worker: WorkerHalf | None = None
        if role is KVConnectorRole.SCHEDULER:
            block_tokens = kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size
            self._scheduler = SchedulerHalf(
                self._settings,
                world_size=vllm_config.parallel_config.tensor_parallel_size,
                step_rows=vllm_config.scheduler_config.max_num_batched_tokens,
                block_tokens=block_tokens,
                hash_tokens=getattr(vllm_config.cache_config, "hash_block_size", None)
                or block_tokens,
                vocabulary=vllm_config.model_config.get_vocab_size(),
                longest=vllm_config.model_config.max_model_len,
            )

    @property
    def requires_kv_delivery(self) -> bool:
        # Nothing is handed to another engine; a preempted request is simply filled once more.
        return False

    # -- in the worker -----------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._worker = build_worker(
            self._settings,
            self._vllm_config,
            self._kv_cache_config,
            kv_caches,
            rank=get_tensor_model_parallel_rank(),
        )

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        orders = self._get_connector_metadata()
        if self._worker is not None and isinstance(orders, StepOrders):
            self._worker.step(orders)

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass  # `start_load_kv` has queued all of it on the stream that computes

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any
    ) -> None:
        pass  # vLLM's pages may hold blended KV: chunk KV comes from a pass of its own

    def wait_for_save(self) -> None:
        pass

    def get_block_ids_with_load_errors(self) -> set[int]:
        return set() if self._worker is None else self._worker.take_failed_blocks()

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata | None:
        return None if self._worker is None else self._worker.news()

    # -- in the scheduler --------------------------------------------------------------------------

    def on_new_request(self, request: Any) -> None:
        self._half().on_new_request(request)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        return self._half().claim(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._half().allocated(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return self._half().orders(scheduler_output.num_scheduled_tokens)

    def update_connector_output(self, connector_output: Any) -> None:
        news = connector_output.kv_connector_worker_meta
        if isinstance(news, StepNews):
            self._half().hear(news)

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        return False, self._half().finished(request)

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        return None if self._scheduler is None else self._scheduler.take_stats()

    def has_pending_push_work(self) -> bool:
        return self._half().has_work()

    # -- where metrics are served ------------------------------------------------------------------

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats:
        return KvweaveStats(data or {})

    @classmethod
    def build_prom_metrics(cls, *args: Any, **kwargs: Any) -> KVConnectorPromMetrics:
        return KvweavePromMetrics(*args, **kwargs)

    # -- both --------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if self._scheduler is not None:
            self._scheduler.close()
            self._scheduler = None

    def _half(self) -> SchedulerHalf:
        assert self._scheduler is not None, "called in a worker"
        return self._scheduler


def _log_like_vllm() -> None:
    """Let the rest of kvweave log where vLLM does; a process of vLLM's has no other handler."""
    ours = logging.getLogger("kvweave")
    if not ours.handlers:
        ours.handlers = list(logging.getLogger("vllm").handlers)
        ours.setLevel(logging.INFO)
        ours.propagate = False
