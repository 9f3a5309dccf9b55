"""The HTTP application."""

from __future__ import annotations

import difflib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

from kvweave.accounts import Accounts
from kvweave.api.authentication import Authentication
from kvweave.api.errors import ApiError, error_style
from kvweave.api.local import LocalModel
from kvweave.api.middleware import CanonicalPath, ConcurrencyLimit, RequestContext
from kvweave.api.openapi import openapi_schema
from kvweave.api.paths import canonical_path
from kvweave.api.recording import Recording
from kvweave.api.routes import create_router
from kvweave.config import ServerConfig
from kvweave.providers import Channel

log = logging.getLogger(__name__)


def create_app(
    local: LocalModel | None,
    metrics_endpoint: Callable[[], bytes],
    accounts: Accounts,
    *,
    channel: Channel | None = None,
    limits: ServerConfig | None = None,
) -> FastAPI:
    """The app that answers with an engine of its own, with providers, or with both.

    Every endpoint answers under `/v1`, `/`, `/api` and `/api/v1`, with and without a
    trailing slash, and every error is in the format of the API that was called. Starting and
    stopping the engine is the caller's.

    Args:
        local: the model of this server's engine.
        metrics_endpoint: returns the metrics in Prometheus' text format.
        accounts: who may call, and where usage is recorded; started and closed by the caller.
        channel: asks the providers; closed with the app.
        limits: what a request may ask of the server; the defaults if None.
    """
    limits = limits or ServerConfig()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        if channel is not None:
            await channel.close()

    # No docs pages: they would load scripts from the network. The schema is written by hand,
    # because endpoints read their bodies themselves, for errors that the clients understand.
    app = FastAPI(
        openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan
    )
    router = create_router(local, channel, metrics_endpoint, limits)
    app.include_router(router)
    schema = openapi_schema(has_engine=local is not None)

    @app.get("/openapi.json")
    async def openapi() -> Response:
        return JSONResponse(schema)

    # The one added last is the outermost: it answers errors.
    app.add_middleware(ConcurrencyLimit, limit=limits.max_concurrent_requests)
    app.add_middleware(Recording, sink=accounts)
    app.add_middleware(Authentication, accounts=accounts)
    app.add_middleware(CanonicalPath)
    app.add_middleware(RequestContext)

    endpoints = _endpoints(router)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        told = _route_error(request, error, endpoints)
        return told.response(error_style(request.scope), request.state.request_id)

    app.add_exception_handler(HTTPException, http_error)
    return app


def _endpoints(router: APIRouter) -> list[str]:
    """`POST /v1/chat/completions` and so on."""
    return [
        f"{method} /v1{route.path}"
        for route in router.routes
        if isinstance(route, Route) and route.path != "/"
        for method in sorted((route.methods or set()) - {"HEAD"})
    ]


def _route_error(request: Request, error: HTTPException, endpoints: Iterable[str]) -> ApiError:
    """What to say to a request that no endpoint takes."""
    asked = request.state.asked_path
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        return ApiError(
            405,
            f"{request.method} is not possible at {asked}; use {allowed}.",
            code="method_not_allowed",
            headers={"allow": allowed},
        )
    if error.status_code == 404:
        wanted = f"{request.method} /v1{canonical_path(asked)}"
        nearest = difflib.get_close_matches(wanted, endpoints, n=1, cutoff=0.0)[0]
        return ApiError(
            404,
            f"There is nothing at {request.method} {asked}. Did you mean {nearest}? "
            f"This server answers {', '.join(endpoints)}; "
            "as a client's base URL give the address that ends in /v1.",
            code="unknown_url",
        )
    return ApiError(error.status_code, str(error.detail))
