"""Reusing the chunk KV of one prompt: what every engine's integration is built from."""

from kvweave.reuse.jobs import ChunkJob, compute_chunk
from kvweave.reuse.options import Mode, ReuseOptions
from kvweave.reuse.report import ChunkReport, ReuseReport
from kvweave.reuse.reuse import ChunkReuse, FoundChunks, ReuseRequest
from kvweave.reuse.selecting import UnknownSelector, selector_named

__all__ = [
    "ChunkJob",
    "ChunkReport",
    "ChunkReuse",
    "FoundChunks",
    "Mode",
    "ReuseOptions",
    "ReuseReport",
    "ReuseRequest",
    "UnknownSelector",
    "compute_chunk",
    "selector_named",
]
