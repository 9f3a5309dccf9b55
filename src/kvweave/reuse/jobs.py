"""The chunk KV of a prompt: where it belongs, and what it takes to compute it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kvweave.blend import compute_chunk_kv
from kvweave.kv import ChunkCache, ChunkRef, chunk_ref
from kvweave.models import BlendableModel
from kvweave.prompt import Prompt, Segment


@dataclass(frozen=True, slots=True)
class ChunkJob:
    """Chunk KV to compute: `ref`, alone after the prefix `prefix` (None: no prefix)."""

    ref: ChunkRef
    prefix: ChunkRef | None


@dataclass(frozen=True, slots=True)
class Part:
    """A chunk of a prompt, or its system prefix: KV that can come from the cache.

    Attributes:
        start: its first token's position in the prompt.
        exact: the KV that `job` gives is the full prefill's here, since what stands before it in
            the prompt is what it is computed after.
    """

    segment: Segment
    job: ChunkJob
    start: int
    exact: bool

    @property
    def is_chunk(self) -> bool:
        return self.segment.role == "chunk"


def chunk_job(
    identity: str, tenant: str, prefix_ids: tuple[int, ...], token_ids: tuple[int, ...]
) -> ChunkJob:
    """What it takes to compute the KV of `token_ids` alone after `prefix_ids`."""
    ref = chunk_ref(identity, tenant, prefix_ids, token_ids)
    return ChunkJob(ref, chunk_ref(identity, tenant, (), prefix_ids) if prefix_ids else None)


def parts(prompt: Prompt, identity: str, tenant: str = "") -> Iterator[Part]:
    """The system prefix and the chunks of `prompt`, in its order."""
    ids = prompt.token_ids
    start = 0
    for segment in prompt.segments:
        if segment.role != "fresh":
            after = prompt.prefix_ids if segment.role == "chunk" else ()
            job = chunk_job(identity, tenant, after, segment.token_ids)
            yield Part(segment, job, start, start == len(after) and ids[:start] == after)
        start += len(segment.token_ids)


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
