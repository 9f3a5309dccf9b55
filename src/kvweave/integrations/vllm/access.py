"""Who may ask: vLLM's own rule, applied before vLLM does, since middleware runs outside of it."""

from __future__ import annotations

import os
import secrets
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope


def may_ask(scope: Scope) -> bool:
    """Whether this request carries one of the server's API keys, if it has any."""
    keys = _keys(scope["app"])
    if not keys:
        return True
    scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
    given = token.encode()
    return scheme.lower() == "bearer" and any(
        [secrets.compare_digest(given, key.encode()) for key in keys]
    )


def _keys(app: Any) -> list[str]:
    named = app.state.args.api_key or [os.environ.get("VLLM_API_KEY")]
    return [key for key in ([named] if isinstance(named, str) else named) if key]
