"""What `kvweave serve` says at the start about the machine it runs on."""

from __future__ import annotations

import logging

from kvweave.config import GB, Config

log = logging.getLogger("kvweave")


def warn_about_environment(config: Config) -> None:
    """Log what makes the configured cache slow or unsafe here, each with what to do. Never fails.

    Call it before the pools are allocated.
    """
    import torch

    from kvweave.kv import check_cache_folder, check_memory

    kv = config.kv_cache
    if kv.ssd_cache_max_gb:
        folder = check_cache_folder(kv.ssd_cache_dir, int(kv.ssd_cache_max_gb * GB))
        for finding in folder.findings:
            log.warning("cache folder: %s", finding)
    pools_gb = kv.cpu_kv_pool_gb
    if not torch.cuda.is_available():
        pools_gb += kv.gpu_kv_pool_gb
    for finding in check_memory(int(pools_gb * GB)):
        log.warning("memory: %s", finding)
