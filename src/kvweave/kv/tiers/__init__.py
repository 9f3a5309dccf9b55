"""The places where chunk KV lies."""

from kvweave.kv.tiers.base import Tier, TierStats
from kvweave.kv.tiers.folder import StoredFile
from kvweave.kv.tiers.index import DiskIndex
from kvweave.kv.tiers.memory import MemoryTier
from kvweave.kv.tiers.ssd import SSDTier

__all__ = ["DiskIndex", "MemoryTier", "SSDTier", "StoredFile", "Tier", "TierStats"]
