"""Reusing the chunk KV of one prompt: what every engine's integration is built from.

What needs torch is loaded when it is first asked for: a server that only passes requests on, and
answers with what others reused, does without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kvweave.reuse.errors import CacheTooSmall, UnknownSelector
from kvweave.reuse.options import Mode, ReuseOptions
from kvweave.reuse.report import ChunkReport, ReuseReport

if TYPE_CHECKING:
    from kvweave.reuse.calibration import calibrate
    from kvweave.reuse.holding import all_cached
    from kvweave.reuse.jobs import ChunkJob, Part, compute_chunk, parts
    from kvweave.reuse.reuse import ChunkReuse, FoundChunks, Outlook, ReuseRequest
    from kvweave.reuse.selecting import selector_named
    from kvweave.reuse.warming import warm_up

__all__ = [
    "CacheTooSmall",
    "ChunkJob",
    "ChunkReport",
    "ChunkReuse",
    "FoundChunks",
    "Mode",
    "Outlook",
    "Part",
    "ReuseOptions",
    "ReuseReport",
    "ReuseRequest",
    "UnknownSelector",
    "all_cached",
    "calibrate",
    "compute_chunk",
    "parts",
    "selector_named",
    "warm_up",
]

_LAZY = {
    "all_cached": "holding",
    "calibrate": "calibration",
    "ChunkJob": "jobs",
    "compute_chunk": "jobs",
    "ChunkReuse": "reuse",
    "FoundChunks": "reuse",
    "Outlook": "reuse",
    "Part": "jobs",
    "parts": "jobs",
    "ReuseRequest": "reuse",
    "selector_named": "selecting",
    "warm_up": "warming",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
