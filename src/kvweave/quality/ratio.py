"""How much to compute again, as audits tell: up while quality is bad, down once it is not."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

#: Ratios above the configured one, in the order in which they are tried. 1.0 is a full prefill.
STEPS = (0.2, 0.3, 0.5, 1.0)
#: Audits on which a decision rests: at least, and at most (the latest).
FEWEST_AUDITS, MOST_AUDITS = 8, 32
#: One bad answer counts for no more than this many times the limit: it may not decide alone.
_WORST = 4.0
#: Good audits before a step down, and the most it grows to while steps down go wrong.
_PATIENCE, _LONGEST_PATIENCE = 16, 512


@dataclass(frozen=True, slots=True)
class RatioChange:
    """One change of the recompute ratio. `time` is in seconds since the epoch."""

    time: float
    before: float
    after: float
    reason: str


class RatioController:
    """Raises the recompute ratio while the mean KL of audited requests is past a limit.

    It goes up one step at a time, at worst to a full prefill. After `_PATIENCE` good audits it goes
    down one step; when that goes wrong, it waits twice as long before the next attempt, so that a
    lasting fault costs ever fewer bad answers. Thread-safe.

    Args:
        configured: the ratio to serve while all is well; it is never lower.
        max_kl: limit on the mean KL in nats.
    """

    def __init__(self, configured: float, max_kl: float) -> None:
        self._max_kl = max_kl
        self._steps = (configured, *(step for step in STEPS if step > configured))
        self._lock = threading.Lock()
        self._at = 0
        self._seen: deque[float] = deque(maxlen=MOST_AUDITS)
        self._since_change = 0
        self._patience = _PATIENCE
        self._came_down = False

    @property
    def ratio(self) -> float:
        """What to serve now; 1.0 means a full prefill."""
        return self._steps[self._at]

    def observe(self, ratio: float, kl: float) -> RatioChange | None:
        """Take in one audit; returns the change it led to, if any.

        Args:
            ratio: what the request was served with. Others than the present one are passed over:
                they were under way when it changed.
            kl: KL divergence of its first token from the full prefill's, in nats.
        """
        with self._lock:
            if ratio != self.ratio:
                return None
            self._seen.append(min(kl, _WORST * self._max_kl))
            self._since_change += 1
            mean = sum(self._seen) / len(self._seen)
            if len(self._seen) >= FEWEST_AUDITS and mean > self._max_kl:
                return self._raise(mean)
            if self._at and self._since_change >= self._patience:
                return self._lower(mean)
            if self._since_change >= _LONGEST_PATIENCE:
                self._patience = _PATIENCE
            return None

    def _raise(self, mean: float) -> RatioChange | None:
        if self._at + 1 == len(self._steps):
            return None
        if self._came_down:
            self._patience = min(2 * self._patience, _LONGEST_PATIENCE)
        reason = f"mean KL {mean:.3g} over {len(self._seen)} audits is above {self._max_kl:g}"
        return self._move(1, reason)

    def _lower(self, mean: float) -> RatioChange:
        reason = f"{self._since_change} audits with a mean KL of {mean:.3g} lately: trying less"
        return self._move(-1, reason)

    def _move(self, by: int, reason: str) -> RatioChange:
        before = self.ratio
        self._at += by
        self._came_down = by < 0
        self._seen.clear()
        self._since_change = 0
        return RatioChange(time.time(), before, self.ratio, reason)
