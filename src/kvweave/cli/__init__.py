"""The `kvweave` command: each group of commands is a module, registered in `app`."""

from __future__ import annotations

from kvweave.cli.app import app

__all__ = ["app"]
