"""The tiers as they are configured."""

from __future__ import annotations

import logging

import torch

from kvweave.config import GB, KVCacheConfig
from kvweave.kv.admission import Admission
from kvweave.kv.eviction import make_policy
from kvweave.kv.format import KVFormat
from kvweave.kv.hierarchy import ChunkCache
from kvweave.kv.tiers import MemoryTier, SSDTier, Tier

log = logging.getLogger(__name__)

#: Length of a chunk by which bookkeeping is sized.
TYPICAL_CHUNK_TOKENS = 200


def build_cache(kv: KVCacheConfig, fmt: KVFormat, device: torch.device) -> ChunkCache:
    """The configured tiers, fastest first. A tier of size 0 is left out.

    A cache folder that cannot be used costs the `ssd` tier and one log line, not the service.
    """
    on_gpu = device.type == "cuda"
    tiers: list[Tier] = []
    if kv.gpu_kv_pool_gb:
        policy = make_policy(kv.eviction_policy)
        capacity = int(kv.gpu_kv_pool_gb * GB)
        below = bool(kv.cpu_kv_pool_gb)
        tiers.append(
            MemoryTier(
                "gpu",
                capacity,
                policy,
                fmt,
                device,
                keep_evicted=below,
                admission=Admission(_typical_chunks(capacity, fmt)),
            )
        )
    if kv.cpu_kv_pool_gb:
        policy = make_policy(kv.eviction_policy)
        capacity = int(kv.cpu_kv_pool_gb * GB)
        tiers.append(
            MemoryTier(
                "cpu",
                capacity,
                policy,
                fmt,
                pin_memory=on_gpu,
                admission=Admission(_typical_chunks(capacity, fmt)),
            )
        )
    if kv.ssd_cache_max_gb:
        policy = make_policy(kv.eviction_policy)
        capacity = int(kv.ssd_cache_max_gb * GB)
        try:
            tiers.append(
                SSDTier(
                    kv.ssd_cache_dir,
                    capacity,
                    policy,
                    fmt,
                    direct_io=kv.ssd_direct_io,
                    pin_memory=on_gpu,
                )
            )
        except OSError as error:
            log.error(
                "ssd tier off: cannot use kv_cache.ssd_cache_dir %s (%s); mend the folder's "
                "permissions or choose another, then restart",
                kv.ssd_cache_dir,
                error.strerror or error,
            )
    return ChunkCache(tiers, fmt)


def _typical_chunks(capacity_bytes: int, fmt: KVFormat) -> int:
    """About how many chunks a tier holds."""
    return max(1, capacity_bytes // fmt.nbytes(TYPICAL_CHUNK_TOKENS))
