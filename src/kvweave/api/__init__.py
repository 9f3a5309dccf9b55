"""The HTTP server in OpenAI's and Anthropic's formats."""

from __future__ import annotations

from kvweave.api.app import create_app
from kvweave.api.local import LocalModel
from kvweave.api.ports import Engine
from kvweave.api.server import ServerStartError, run_server

__all__ = ["Engine", "LocalModel", "ServerStartError", "create_app", "run_server"]
