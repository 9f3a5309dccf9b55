"""Reuse the KV cache of retrieved chunks wherever they land in a prompt."""

from __future__ import annotations

__version__ = "0.1.0"
