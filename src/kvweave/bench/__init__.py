"""Benchmarks: what chunk reuse gains, and what it costs in answers."""

from __future__ import annotations

from kvweave.bench.arms import ARMS, parse_arms
from kvweave.bench.dataset import DatasetError, read_dataset, write_dataset
from kvweave.bench.errors import BenchError
from kvweave.bench.questions import Chunk, Question
from kvweave.bench.rag import RagSettings, run_rag
from kvweave.bench.report import Report
from kvweave.bench.table import print_tables
from kvweave.bench.warming import ChunkSender, batches, read_texts

__all__ = [
    "ARMS",
    "BenchError",
    "Chunk",
    "ChunkSender",
    "DatasetError",
    "Question",
    "RagSettings",
    "Report",
    "batches",
    "parse_arms",
    "print_tables",
    "read_dataset",
    "read_texts",
    "run_rag",
    "write_dataset",
]
