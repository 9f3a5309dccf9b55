"""What the connector shows of itself: kvweave's metrics on vLLM's `/metrics`, and its log line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import prometheus_client
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from kvweave.metrics import Metrics, RequestSample


@dataclass
class KvweaveStats(KVConnectorStats):
    """From the scheduler's process to the one that serves `/metrics`; plain values only.

    data: `samples`, a list of `RequestSample` as dicts; `tiers`, `pending` and `speeds` as
    `Metrics.show` takes them.
    """

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def is_empty(self) -> bool:
        return not self.data

    def aggregate(self, other: KVConnectorStats) -> KvweaveStats:
        samples = [*self.data.get("samples", ()), *other.data.get("samples", ())]
        return KvweaveStats({**self.data, **other.data, "samples": samples})

    def reduce(self) -> dict[str, int | float]:
        samples = self.data.get("samples", ())
        return {
            "chunk tokens looked up": sum(sample["looked_up"] for sample in samples),
            "chunk tokens found": sum(sum(sample["loaded"].values()) for sample in samples),
        }


class KvweavePromMetrics(KVConnectorPromMetrics):
    """Puts what arrives into the registry that vLLM's `/metrics` shows."""

    _shared: Metrics | None = None  # a registry takes each name once

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if KvweavePromMetrics._shared is None:
            KvweavePromMetrics._shared = Metrics(prometheus_client.REGISTRY)
        self._metrics = KvweavePromMetrics._shared

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for sample in transfer_stats_data.get("samples", ()):
            self._metrics.observe(RequestSample(**sample))
        tiers = {name: _Fill(*fill) for name, fill in transfer_stats_data.get("tiers", {}).items()}
        by_tier, per_second = transfer_stats_data.get("speeds", ({}, None))
        pending = transfer_stats_data.get("pending", 0)
        self._metrics.show(tiers, pending, (by_tier, per_second))


@dataclass(frozen=True, slots=True)
class _Fill:
    chunks: int
    used_bytes: int
    capacity_bytes: int


def sample_of(report: dict[str, Any], completion_tokens: int, ttft: float | None) -> dict[str, Any]:
    """What one finished request contributes, as a dict of `RequestSample`'s fields."""
    loaded: Counter[str] = Counter()
    computed: Counter[str] = Counter()
    misses: Counter[str] = Counter()
    chunks = report.get("chunks", ())
    for chunk in chunks:
        if chunk["tier"] is None:
            misses[chunk["miss_reason"] or "new"] += 1
        else:
            loaded[chunk["tier"]] += chunk["tokens"]
            if not chunk["loaded"]:
                computed[chunk["tier"]] += chunk["tokens"]
    return {
        "mode": report.get("mode", "blend"),
        "ttft": ttft,
        "prompt_tokens": report.get("prompt_tokens", 0),
        "completion_tokens": completion_tokens,
        "looked_up": sum(chunk["tokens"] for chunk in chunks),
        "loaded": dict(loaded),
        "forced": report.get("forced", 0),
        "selected": report.get("selected", 0),
        "miss_reasons": dict(misses),
        "computed_instead": dict(computed),
    }
