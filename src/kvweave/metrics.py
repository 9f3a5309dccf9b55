"""What the service shows of itself: Prometheus metrics and the hit-rate log line."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    Summary,
    generate_latest,
)

log = logging.getLogger("kvweave.hit_rate")

#: Requests that a window remembers, should nobody ask for its line.
_WINDOW_REQUESTS = 100_000
_KL_BUCKETS = (0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1, 2, 5)
_TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)


class TierFill(Protocol):
    """How full a tier is; `kv.TierStats` is one."""

    @property
    def chunks(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def capacity_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RequestSample:
    """What one finished request contributes.

    looked_up: chunk tokens that were looked up. loaded: those found, by tier. computed_instead:
    those found, by tier, but computed again because that was faster. Times in seconds.
    """

    mode: str
    ttft: float | None
    prompt_tokens: int
    completion_tokens: int
    looked_up: int
    loaded: Mapping[str, int]
    forced: int
    selected: int
    miss_reasons: Mapping[str, int]
    computed_instead: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Window:
    looked_up: int = 0
    loaded: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("gpu", "cpu", "ssd"), 0))
    ttft: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW_REQUESTS))


class Metrics:
    """Counters of one server, in a registry of its own unless one is given. Thread-safe."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry = registry or CollectorRegistry()
        self._lock = threading.Lock()
        self._window = _Window()
        self._requests = Counter(
            "kvweave_requests", "Finished requests.", ["mode"], registry=registry
        )
        self._ttft = Histogram(
            "kvweave_ttft_seconds",
            "Time to first token.",
            ["mode"],
            buckets=_TTFT_BUCKETS,
            registry=registry,
        )
        self._tokens = Counter(
            "kvweave_tokens",
            "Tokens by what became of them: prompt, completion, forced, selected.",
            ["kind"],
            registry=registry,
        )
        self._looked_up = Counter(
            "kvweave_chunk_tokens_looked_up", "Chunk tokens looked up.", registry=registry
        )
        self._hits = Counter(
            "kvweave_chunk_tokens_hit", "Chunk tokens found, by tier.", ["tier"], registry=registry
        )
        self._misses = Counter(
            "kvweave_chunk_misses", "Chunks not found, by reason.", ["reason"], registry=registry
        )
        self._computed = Counter(
            "kvweave_chunk_tokens_computed_instead",
            "Chunk tokens found, but computed because loading would have been slower, by tier.",
            ["tier"],
            registry=registry,
        )
        self._tier_speed = Gauge(
            "kvweave_tier_read_bytes_per_second",
            "Measured speed of loading from a tier.",
            ["tier"],
            registry=registry,
        )
        self._compute_speed = Gauge(
            "kvweave_compute_tokens_per_second", "Measured speed of computing.", registry=registry
        )
        self._tier_bytes = Gauge(
            "kvweave_tier_used_bytes", "Bytes used in a tier.", ["tier"], registry=registry
        )
        self._tier_capacity = Gauge(
            "kvweave_tier_capacity_bytes", "Limit of a tier.", ["tier"], registry=registry
        )
        self._tier_chunks = Gauge(
            "kvweave_tier_chunks", "Chunks held in a tier.", ["tier"], registry=registry
        )
        self._pending = Gauge(
            "kvweave_pending_chunks", "Chunks whose KV is still to be computed.", registry=registry
        )

        self._ratio = Gauge(
            "kvweave_recompute_ratio", "Recompute ratio served now, at least.", registry=registry
        )
        self._ratio_changes = Counter(
            "kvweave_recompute_ratio_changes",
            "Changes of the recompute ratio by the quality guard.",
            ["direction"],
            registry=registry,
        )
        self._audit_kl = Histogram(
            "kvweave_audit_kl_nats",
            "KL divergence of audited requests' first token from a full prefill's.",
            buckets=_KL_BUCKETS,
            registry=registry,
        )
        self._audit_top1 = Counter(
            "kvweave_audit_top1",
            "Audited requests by whether a full prefill has the same likeliest first token.",
            ["same"],
            registry=registry,
        )
        self._audit_text = Summary(
            "kvweave_audit_text_agreement",
            "Share of an audited answer's tokens that a full prefill would have chosen too.",
            registry=registry,
        )

    def set_model(self, name: str, identity: str) -> None:
        """The model that is served; `identity` is the one that its chunk KV is stored under."""
        info = Info("kvweave_model", "The model that is served.", registry=self._registry)
        info.info({"name": name, "identity": identity})

    def set_quality(self, gate_passed: bool | None, ratio: float) -> None:
        """What the service starts with; the gate's verdict is None if it was not asked."""
        if gate_passed is not None:
            Gauge(
                "kvweave_quality_gate_passed",
                "Whether reuse passed the quality check (1), or failed and is off (0).",
                registry=self._registry,
            ).set(gate_passed)
        self._ratio.set(ratio)

    def note_ratio(self, before: float, after: float) -> None:
        """The quality guard has changed the recompute ratio."""
        self._ratio.set(after)
        self._ratio_changes.labels("up" if after > before else "down").inc()

    def observe_audit(self, kl: float, top1: bool, text_agreement: float | None) -> None:
        """Count one audited request; `kl` in nats."""
        self._audit_kl.observe(kl)
        self._audit_top1.labels("yes" if top1 else "no").inc()
        if text_agreement is not None:
            self._audit_text.observe(text_agreement)

    def observe(self, sample: RequestSample) -> None:
        """Count one finished request."""
        self._requests.labels(sample.mode).inc()
        if sample.ttft is not None:
            self._ttft.labels(sample.mode).observe(sample.ttft)
        for kind in ("prompt", "completion"):
            self._tokens.labels(kind).inc(getattr(sample, f"{kind}_tokens"))
        self._tokens.labels("forced").inc(sample.forced)
        self._tokens.labels("selected").inc(sample.selected)
        self._looked_up.inc(sample.looked_up)
        for tier, tokens in sample.loaded.items():
            self._hits.labels(tier).inc(tokens)
        for tier, tokens in sample.computed_instead.items():
            self._computed.labels(tier).inc(tokens)
        for reason, chunks in sample.miss_reasons.items():
            self._misses.labels(reason).inc(chunks)
        with self._lock:
            self._window.looked_up += sample.looked_up
            for tier, tokens in sample.loaded.items():
                self._window.loaded[tier] += tokens
            if sample.ttft is not None:
                self._window.ttft.append(sample.ttft)

    def show(
        self,
        tiers: Mapping[str, TierFill],
        pending_chunks: int,
        speeds: tuple[Mapping[str, float], float | None] = ({}, None),
    ) -> None:
        """Set the gauges; arguments as for `render`."""
        for tier, speed in speeds[0].items():
            self._tier_speed.labels(tier).set(speed)
        if speeds[1] is not None:
            self._compute_speed.set(speeds[1])
        for tier, fill in tiers.items():
            self._tier_bytes.labels(tier).set(fill.used_bytes)
            self._tier_capacity.labels(tier).set(fill.capacity_bytes)
            self._tier_chunks.labels(tier).set(fill.chunks)
        self._pending.set(pending_chunks)

    def render(
        self,
        tiers: Mapping[str, TierFill] | None = None,
        pending_chunks: int = 0,
        speeds: tuple[Mapping[str, float], float | None] = ({}, None),
    ) -> bytes:
        """The Prometheus text format, with the gauges set to the values given.

        speeds: bytes per second by tier, and tokens computed per second, as far as known.
        """
        self.show(tiers or {}, pending_chunks, speeds)
        return generate_latest(self._registry)

    def hit_rate_line(self) -> str | None:
        """The window since the last call as one line; None if nothing happened in it.

        The four rates are shares of the chunk tokens looked up and add up to 1.
        """
        with self._lock:
            window, self._window = self._window, _Window()
        if not window.ttft and not window.looked_up:
            return None
        total = window.looked_up
        rates = {tier: tokens / total if total else 0.0 for tier, tokens in window.loaded.items()}
        miss = 1.0 - sum(rates.values()) if total else 0.0
        ttft = np.array(window.ttft or [float("nan")]) * 1e3
        return (
            f"GPU hit rate {rates['gpu']:.3f} | CPU refill rate {rates['cpu']:.3f} | "
            f"SSD hit rate {rates['ssd']:.3f} | miss rate {miss:.3f} | "
            f"chunk tokens {total} | requests {len(window.ttft)} | "
            f"TTFT mean {ttft.mean():.0f} ms, p95 {np.percentile(ttft, 95):.0f} ms"
        )


class HitRateLog:
    """Logs `Metrics.hit_rate_line` every `interval` seconds from a thread of its own."""

    def __init__(self, metrics: Metrics, interval: float) -> None:
        self._metrics = metrics
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvweave-hit-rate", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Log what is left in the window and end."""
        self._stop.set()
        self._thread.join()
        self._log()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._log()

    def _log(self) -> None:
        line = self._metrics.hit_rate_line()
        if line is not None:
            log.info(line)
