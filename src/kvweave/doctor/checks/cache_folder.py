"""A cache folder on a network drive, on a slow or full disk, or open to others."""

from __future__ import annotations

from collections.abc import Iterator

from kvweave.config import GB
from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Look at the folder, and measure its disk."""
    from kvweave.kv.environment import check_cache_folder

    cache = subject.config.kv_cache
    if not cache.ssd_cache_max_gb:
        return
    found = check_cache_folder(cache.ssd_cache_dir, int(cache.ssd_cache_max_gb * GB))
    for finding in found.findings:
        yield Finding(finding.code, f"the cache folder: {finding.message}", finding.mend)
