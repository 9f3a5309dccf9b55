"""Load or compute? Decided per request and chunk from speeds that are measured and kept current.

With overlap, loading and computing run side by side, so a prompt takes about as long as the slower
of the two; without, it takes their sum. Chunks are loaded while that makes the prompt faster, and
computed again where it does not: on a slow disk and a fast GPU, loading can be the slower way.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from kvweave.kv.chunk import TierName

#: Weight of a new measurement against what was known.
_SMOOTHING = 0.3
#: Shorter measurements say more about the clock than about the speed.
_MIN_SECONDS = 1e-4
_MIN_ROWS = 32


@dataclass(frozen=True, slots=True)
class Found:
    """Stored KV that a prompt could load.

    exact: it never needs recomputing once loaded, so the ratio does not apply to it.
    """

    tier: TierName
    tokens: int
    nbytes: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with one prompt, and what that is expected to take.

    Attributes:
        load: for each `Found`, whether to load it; what is not loaded is computed.
        recompute_ratio: share of the loaded chunk tokens to compute again.
        load_seconds, compute_seconds: expected; None while a speed is not known yet.
        reason: why, in words.
    """

    load: tuple[bool, ...]
    recompute_ratio: float
    load_seconds: float | None
    compute_seconds: float | None
    reason: str


class Planner:
    """Knows how fast each tier loads and how fast the model computes. Thread-safe.

    Args:
        overlap: whether loading runs beside computing.
    """

    def __init__(self, *, overlap: bool) -> None:
        self._overlap = overlap
        self._lock = threading.Lock()
        self._bytes_per_second: dict[TierName, float] = {}
        self._seconds_per_token: float | None = None

    def observe_load(self, tier: TierName, nbytes: int, seconds: float) -> None:
        """Loading `nbytes` from `tier` took `seconds`."""
        if nbytes and seconds >= _MIN_SECONDS:
            with self._lock:
                known = self._bytes_per_second.get(tier)
                self._bytes_per_second[tier] = _smooth(known, nbytes / seconds)

    def observe_compute(self, tokens: int, seconds: float) -> None:
        """Computing `tokens` tokens through all layers took `seconds`."""
        if tokens >= _MIN_ROWS and seconds >= _MIN_SECONDS:
            with self._lock:
                self._seconds_per_token = _smooth(self._seconds_per_token, seconds / tokens)

    def speeds(self) -> tuple[dict[TierName, float], float | None]:
        """Bytes per second by tier, and tokens computed per second; only what is known."""
        with self._lock:
            per_token = self._seconds_per_token
            return dict(self._bytes_per_second), None if per_token is None else 1 / per_token

    def plan(
        self, found: Sequence[Found], forced_tokens: int, ratio: float, *, stretch: bool = False
    ) -> Plan:
        """Decide for one prompt.

        Args:
            found: what is stored of it.
            forced_tokens: tokens that have to be computed in any case.
            ratio: share of the loaded chunk tokens to compute again.
            stretch: raise the ratio as far as computing stays hidden behind loading.
        """
        with self._lock:
            speeds, per_token = dict(self._bytes_per_second), self._seconds_per_token
        if per_token is None or any(piece.tier not in speeds for piece in found):
            return Plan((True,) * len(found), ratio, None, None, "speeds are not known yet: load")
        loading = [piece.nbytes / speeds[piece.tier] for piece in found]
        saved = [
            piece.tokens * per_token * (1.0 if piece.exact else 1.0 - ratio) for piece in found
        ]
        load = [True] * len(found)
        load_seconds = sum(loading)
        compute_seconds = per_token * (
            forced_tokens + sum(ratio * p.tokens for p in found if not p.exact)
        )
        # What loads slowest for what it saves goes first.
        for i in sorted(range(len(found)), key=lambda i: saved[i] / loading[i]):
            now = self._total(load_seconds, compute_seconds)
            if self._total(load_seconds - loading[i], compute_seconds + saved[i]) >= now:
                break
            load[i] = False
            load_seconds -= loading[i]
            compute_seconds += saved[i]
        if stretch and self._overlap:
            kept = [piece for piece, wanted in zip(found, load, strict=True) if wanted]
            flexible = sum(piece.tokens for piece in kept if not piece.exact)
            spare = load_seconds - compute_seconds
            if flexible and spare > 0:
                raised = min(1.0, ratio + spare / (flexible * per_token))
                compute_seconds += (raised - ratio) * flexible * per_token
                ratio = raised
        reason = self._reason(found, load, load_seconds, compute_seconds)
        return Plan(tuple(load), ratio, load_seconds, compute_seconds, reason)

    def _total(self, load: float, compute: float) -> float:
        return max(load, compute) if self._overlap else load + compute

    def _reason(
        self, found: Sequence[Found], load: Sequence[bool], load_seconds: float, compute: float
    ) -> str:
        spent = f"load {load_seconds * 1e3:.0f} ms, compute {compute * 1e3:.0f} ms"
        left = [piece for piece, kept in zip(found, load, strict=True) if not kept]
        if not left:
            return f"load everything: {spent}"
        tiers = ", ".join(sorted({piece.tier for piece in left}))
        tokens = sum(piece.tokens for piece in left)
        return f"compute {tokens} tokens that {tiers} would bring more slowly: {spent}"


def _smooth(known: float | None, measured: float) -> float:
    return measured if known is None else known + _SMOOTHING * (measured - known)
