"""The embedded engine, and what is asked of and answered by an engine."""

from kvweave.engine.errors import (
    EngineError,
    EngineOverloaded,
    EngineStopped,
    PromptTooLong,
    UnknownSelector,
)
from kvweave.engine.report import ChunkReport, ReuseReport
from kvweave.engine.request import Delta, FinishReason, Mode, ReuseOptions, SamplingParams

__all__ = [
    "ChunkReport",
    "Delta",
    "EngineError",
    "EngineOverloaded",
    "EngineStopped",
    "FinishReason",
    "Mode",
    "PromptTooLong",
    "ReuseOptions",
    "ReuseReport",
    "SamplingParams",
    "UnknownSelector",
]
