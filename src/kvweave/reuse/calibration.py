"""How fast the model computes and each tier loads, measured before the first request."""

from __future__ import annotations

import logging
import time

import torch

from kvweave.blend import compute_chunk_kv
from kvweave.kv import ChunkCache, Planner
from kvweave.models import BlendableModel
from kvweave.reuse.reuse import ChunkReuse

log = logging.getLogger(__name__)

#: Length of the made-up chunk with which speeds are measured.
CALIBRATION_TOKENS = 128


def calibrate(
    reuse: ChunkReuse,
    model: BlendableModel,
    cache: ChunkCache,
    planner: Planner,
    max_tokens: int,
) -> None:
    """Tell `planner` what computing and loading a chunk of at most `max_tokens` takes."""
    tokens = min(CALIBRATION_TOKENS, max_tokens)
    ids = tuple(range(1, tokens + 1))
    compute_chunk_kv(model, ids)  # the first pass also pays for caches and page faults
    _synchronize(model.device)
    started = time.perf_counter()
    kv = compute_chunk_kv(model, ids)
    _synchronize(model.device)
    planner.observe_compute(tokens, time.perf_counter() - started)
    ref = reuse.job("calibration", (), ids).ref
    for tier, (nbytes, seconds) in cache.measure(ref, kv).items():
        planner.observe_load(tier, nbytes, seconds)
    speeds, per_second = planner.speeds()
    loading = ", ".join(f"{tier} {speed / 1e9:.2f} GB/s" for tier, speed in speeds.items())
    log.info("computes %.0f tokens/s; loads from %s", per_second or 0, loading or "no tier")


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
