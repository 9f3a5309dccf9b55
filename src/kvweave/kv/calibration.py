"""How fast each tier loads, measured at the start with real chunk KV."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from kvweave.kv.chunk import ChunkKV, ChunkUnreadable, TierName
from kvweave.kv.format import KVFormat
from kvweave.kv.identity import ChunkRef
from kvweave.kv.tiers.base import Tier


def measure_tiers(
    tiers: Sequence[Tier], fmt: KVFormat, ref: ChunkRef, kv: torch.Tensor
) -> dict[TierName, tuple[int, float]]:
    """Store `kv` in every tier, load it from there, and drop it again.

    Args:
        ref: a name that no real chunk has.
        kv: `KVLayout.shape(tokens)`, on the model's device.

    Returns:
        Bytes and seconds by tier; a tier that did not take the chunk is left out.
    """
    chunk = ChunkKV(ref, fmt.encode(kv))
    measured: dict[TierName, tuple[int, float]] = {}
    out = torch.empty_like(kv[0])
    for tier in tiers:
        tier.put(chunk)
        tier.settle(ref.key)
        lease = tier.lease(ref)
        if lease is None:
            continue
        try:
            started = time.perf_counter()
            for layer in range(fmt.layout.layers):
                lease.prefetch(layer)
            for layer in range(fmt.layout.layers):
                lease.read_layer(layer, out[0], out[1])
            if out.is_cuda:
                torch.cuda.synchronize(out.device)
            measured[tier.name] = (chunk.nbytes, time.perf_counter() - started)
        except ChunkUnreadable:
            pass  # the tier has dealt with it
        finally:
            lease.release()
            tier.discard(ref.key)
    return measured
