"""Tells other programs how to reach a server: base URL, key and model, always all three."""

from __future__ import annotations

from kvweave.connect.address import base_url_for
from kvweave.connect.files import Edit, work_out, write
from kvweave.connect.plan import ConnectError, FileChange, Place, Plan, Tool
from kvweave.connect.tools import TOOLS

__all__ = [
    "TOOLS",
    "ConnectError",
    "Edit",
    "FileChange",
    "Place",
    "Plan",
    "Tool",
    "base_url_for",
    "work_out",
    "write",
]
