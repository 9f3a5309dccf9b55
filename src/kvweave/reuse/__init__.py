"""Reusing the chunk KV of one prompt: what every engine's integration is built from."""

from kvweave.reuse.calibration import calibrate
from kvweave.reuse.jobs import ChunkJob, compute_chunk
from kvweave.reuse.options import Mode, ReuseOptions
from kvweave.reuse.report import ChunkReport, ReuseReport
from kvweave.reuse.reuse import ChunkReuse, FoundChunks, Outlook, ReuseRequest
from kvweave.reuse.selecting import UnknownSelector, selector_named
from kvweave.reuse.warm_up import warm_up

__all__ = [
    "ChunkJob",
    "ChunkReport",
    "ChunkReuse",
    "FoundChunks",
    "Mode",
    "Outlook",
    "ReuseOptions",
    "ReuseReport",
    "ReuseRequest",
    "UnknownSelector",
    "calibrate",
    "compute_chunk",
    "selector_named",
    "warm_up",
]
