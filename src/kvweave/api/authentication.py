"""Lets requests in, or not, before any route sees them."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kvweave.accounts import Accounts

# What tells nothing and costs nothing: load balancers and clients probe it without a key.
_OPEN_PATHS = frozenset({"/", "/health"})


class Authentication:
    """Finds out who calls: `request.state.caller`, and `request.state.visit` to charge it.

    Raises, to what stands around it:
        KeyRefused, LimitExceeded, AccountsError: the request is not let in.
    """

    def __init__(self, app: ASGIApp, accounts: Accounts) -> None:
        self._app = app
        self._accounts = accounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        visit = await self._accounts.admit(Headers(scope=scope), charged=scope["method"] == "POST")
        state = scope.setdefault("state", {})
        state["caller"], state["visit"] = visit.caller, visit
        try:
            await self._app(scope, receive, send)
        finally:
            visit.end()
