"""`kvweave bench quality`: what selectors keep of a full prefill's answers, and what they cost."""

from __future__ import annotations

from kvweave.bench.quality.heads import HeadProfile, profile_heads
from kvweave.bench.quality.laboratory import Laboratory
from kvweave.bench.quality.report import print_quality, to_json
from kvweave.bench.quality.settings import QualitySettings, run_quality

__all__ = [
    "HeadProfile",
    "Laboratory",
    "QualitySettings",
    "print_quality",
    "profile_heads",
    "run_quality",
    "to_json",
]
