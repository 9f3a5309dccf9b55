"""What an engine asks before it serves a request with reuse, and tells when it has."""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from dataclasses import asdict
from typing import Any

import numpy as np

from kvweave.metrics import Metrics
from kvweave.quality.audit import Audit
from kvweave.quality.gate import GateResult
from kvweave.quality.ratio import RatioChange, RatioController

log = logging.getLogger(__name__)

_REMEMBERED_AUDITS, _REMEMBERED_CHANGES = 1000, 100


class QualityGuard:
    """Joins the gate's verdict, the audits and the recompute ratio. Thread-safe.

    Args:
        ratio: the configured ratio, or the least one where it is chosen per request.
        max_kl: limit on the mean KL in nats, of audits.
        audit_fraction: share of the requests to audit, 0..1.
        gate: what the gate found; None: it was not asked.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        ratio: float,
        max_kl: float,
        audit_fraction: float = 0.0,
        gate: GateResult | None = None,
    ) -> None:
        self.gate = gate
        self._metrics = metrics
        self._controller = RatioController(ratio, max_kl)
        self._max_kl = max_kl
        self._fraction = audit_fraction
        self._random = random.Random()
        self._lock = threading.Lock()
        self._audits: deque[Audit] = deque(maxlen=_REMEMBERED_AUDITS)
        self._changes: deque[RatioChange] = deque(maxlen=_REMEMBERED_CHANGES)
        metrics.set_quality(None if gate is None else gate.reuse_allowed, ratio)

    @property
    def ratio(self) -> float:
        """The ratio to serve with now, at least; 1.0 means a full prefill."""
        return self._controller.ratio

    def refusal(self) -> str | None:
        """Why nothing is reused now; None if it is."""
        if self.gate is not None and not self.gate.reuse_allowed:
            return f"full prefill: the quality check failed ({self.gate.failures()})"
        if self.ratio >= 1.0:
            return "full prefill: audited answers were too far from those of a full prefill"
        return None

    @property
    def audits(self) -> bool:
        """Whether any request is audited."""
        return self._fraction > 0

    def wants_audit(self) -> bool:
        """Draw whether the next request is to be audited."""
        return self.audits and self._random.random() < self._fraction

    def audited(self, audit: Audit) -> None:
        """Take in what an audit found; the ratio may change."""
        self._metrics.observe_audit(audit.kl, audit.top1, audit.text_agreement)
        change = self._controller.observe(audit.ratio, audit.kl)
        with self._lock:
            self._audits.append(audit)
            if change is not None:
                self._changes.append(change)
        if change is not None:
            self._metrics.note_ratio(change.before, change.after)
            log.warning(
                "recompute ratio %g -> %g%s: %s",
                change.before,
                change.after,
                " (full prefill)" if change.after >= 1.0 else "",
                change.reason,
            )

    def to_json(self, recent: int = 20) -> dict[str, Any]:
        """Everything worth knowing, with the last `recent` audits."""
        with self._lock:
            audits, changes = list(self._audits), list(self._changes)
        return {
            "gate": None if self.gate is None else self.gate.to_json(),
            "serving": self.refusal() or "reuse",
            "recompute_ratio": self.ratio,
            "max_kl": self._max_kl,
            "audit_fraction": self._fraction,
            "audits": _summary(audits),
            "recent": [asdict(audit) for audit in audits[-recent:]],
            "changes": [asdict(change) for change in changes],
        }


def _summary(audits: list[Audit]) -> dict[str, Any]:
    """Over the audits remembered; KL in nats."""
    if not audits:
        return {"count": 0}
    kl = np.array([audit.kl for audit in audits])
    texts = [audit.text_agreement for audit in audits if audit.text_agreement is not None]
    return {
        "count": len(audits),
        "kl_mean": float(kl.mean()),
        "kl_p50": float(np.percentile(kl, 50)),
        "kl_p95": float(np.percentile(kl, 95)),
        "top1_agreement": sum(audit.top1 for audit in audits) / len(audits),
        "text_agreement": sum(texts) / len(texts) if texts else None,
        "seconds_mean": sum(audit.seconds for audit in audits) / len(audits),
    }
