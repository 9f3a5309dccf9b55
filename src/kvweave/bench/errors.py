"""Errors of the benchmark that its reader can mend."""

from __future__ import annotations

from kvweave.errors import KvweaveError


class BenchError(KvweaveError):
    """The benchmark can't run as asked, or can't go on."""
