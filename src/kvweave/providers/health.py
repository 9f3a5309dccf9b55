"""Whether a provider is worth asking right now."""

from __future__ import annotations

import time
from collections.abc import Callable

# So many failures in a row, and a provider is left alone for a while.
FAILURES_TO_COOL = 3
# The first pause; it doubles with every further failure, up to the longest.
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0


class Health:
    """Counts failures in a row and pauses a provider that keeps failing.

    A paused provider is only the last resort, not ruled out: when it answers, all is forgotten.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._paused_until = 0.0
        self.last_error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it is to be asked before those that are paused."""
        return self._clock() >= self._paused_until

    @property
    def pause_s(self) -> float:
        """Seconds until it is asked again like any other."""
        return max(0.0, self._paused_until - self._clock())

    def succeeded(self) -> None:
        """It answered."""
        self._failures = 0
        self._paused_until = 0.0
        self.last_error = None

    def failed(self, message: str, *, retry_after_s: float | None = None) -> None:
        """It did not answer. `retry_after_s`: how long it asked to be left alone."""
        self._failures += 1
        self.last_error = message
        beyond = self._failures - FAILURES_TO_COOL
        pause = FIRST_PAUSE_S * 2.0 ** min(beyond, 16) if beyond >= 0 else 0.0
        pause = min(max(pause, retry_after_s or 0.0), LONGEST_PAUSE_S)
        self._paused_until = max(self._paused_until, self._clock() + pause)
