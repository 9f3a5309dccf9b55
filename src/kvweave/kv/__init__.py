"""Chunk KV: what it is called, what it looks like in bytes, and the tiers where it lies."""

from kvweave.kv.admission import Admission
from kvweave.kv.build import build_cache
from kvweave.kv.chunk import (
    TIER_NAMES,
    ChunkKV,
    ChunkLease,
    ChunkUnreadable,
    MappedPages,
    TierName,
)
from kvweave.kv.environment import (
    DiskSpeed,
    Finding,
    FolderCheck,
    check_cache_folder,
    check_memory,
)
from kvweave.kv.eviction import POLICIES, EvictionPolicy, make_policy
from kvweave.kv.format import KVFormat
from kvweave.kv.hierarchy import ChunkCache, Lookup, MissReason
from kvweave.kv.identity import LAYOUT_VERSION, ChunkRef, chunk_ref
from kvweave.kv.layout import PAGE_TOKENS, KVLayout
from kvweave.kv.planner import Found, Plan, Planner
from kvweave.kv.precision import StorageDtype
from kvweave.kv.tiers import MemoryTier, SSDTier, StoredFile, Tier, TierStats
from kvweave.kv.trace import ChunkLookup, TraceWriter

__all__ = [
    "LAYOUT_VERSION",
    "PAGE_TOKENS",
    "POLICIES",
    "TIER_NAMES",
    "Admission",
    "ChunkCache",
    "ChunkKV",
    "ChunkLease",
    "ChunkLookup",
    "ChunkRef",
    "ChunkUnreadable",
    "DiskSpeed",
    "EvictionPolicy",
    "Finding",
    "FolderCheck",
    "Found",
    "KVFormat",
    "KVLayout",
    "Lookup",
    "MappedPages",
    "MemoryTier",
    "MissReason",
    "Plan",
    "Planner",
    "SSDTier",
    "StorageDtype",
    "StoredFile",
    "Tier",
    "TierName",
    "TierStats",
    "TraceWriter",
    "build_cache",
    "check_cache_folder",
    "check_memory",
    "chunk_ref",
    "make_policy",
]
