"""Chunk KV that is missing: what it takes to compute it, and computing it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from kvweave.blend import compute_chunk_kv
from kvweave.kv import ChunkCache, ChunkRef
from kvweave.models import BlendableModel


@dataclass(frozen=True, slots=True)
class ChunkJob:
    """Chunk KV to compute: `ref`, alone after the system prefix `prefix` (None: no prefix)."""

    ref: ChunkRef
    prefix: ChunkRef | None


def compute_chunk(
    model: BlendableModel, cache: ChunkCache, job: ChunkJob
) -> tuple[torch.Tensor, float]:
    """The chunk KV of `job` (`KVLayout.shape`) and the seconds it took; storing it is left.

    The KV of its prefix is taken from `cache`, or computed and put there.
    """
    prefix_kv = None if job.prefix is None else _prefix_kv(model, cache, job.prefix)
    started = time.perf_counter()
    kv = compute_chunk_kv(model, job.ref.token_ids, prefix_kv)
    return kv, time.perf_counter() - started


def _prefix_kv(model: BlendableModel, cache: ChunkCache, ref: ChunkRef) -> torch.Tensor:
    kv = cache.read(ref)
    if model.any_rank(kv is None) or kv is None:
        started = time.perf_counter()
        kv = compute_chunk_kv(model, ref.token_ids)
        cache.put(ref, kv, time.perf_counter() - started)
    return kv
