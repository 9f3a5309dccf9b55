"""Keys, projects, limits and the record of what was used."""

from __future__ import annotations

from kvweave.accounts.caller import ANONYMOUS_PROJECT, Caller
from kvweave.accounts.usage_record import UsageRecord, UsageSink

__all__ = ["ANONYMOUS_PROJECT", "Caller", "UsageRecord", "UsageSink"]
