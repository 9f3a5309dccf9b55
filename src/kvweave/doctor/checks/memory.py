"""Pools that are larger than the memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvweave.config import GB
from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Compare the pools with what is available. Without a GPU its pool lies in memory too."""
    from kvweave.kv.environment import check_memory

    cache = subject.config.kv_cache
    pools = cache.cpu_kv_pool_gb
    if not Path("/proc/driver/nvidia/version").exists():
        pools += cache.gpu_kv_pool_gb
    for finding in check_memory(int(pools * GB)):
        yield Finding(finding.code, finding.message, finding.mend)
