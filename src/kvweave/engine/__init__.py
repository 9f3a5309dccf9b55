"""The embedded engine, and what is asked of and answered by an engine."""

from kvweave.engine.admission import Admission
from kvweave.engine.errors import (
    EngineError,
    EngineOverloaded,
    EngineStopped,
    PromptTooLong,
)
from kvweave.engine.request import Delta, FinishReason, Progress, SamplingParams
from kvweave.reuse import ChunkReport, Mode, ReuseOptions, ReuseReport, UnknownSelector

__all__ = [
    "Admission",
    "ChunkReport",
    "Delta",
    "EngineError",
    "EngineOverloaded",
    "EngineStopped",
    "FinishReason",
    "Mode",
    "Progress",
    "PromptTooLong",
    "ReuseOptions",
    "ReuseReport",
    "SamplingParams",
    "UnknownSelector",
]
