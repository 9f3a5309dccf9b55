"""The HTTP application."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from kvweave.accounts import Accounts
from kvweave.api.authentication import Authentication
from kvweave.api.errors import ApiError
from kvweave.api.middleware import CanonicalPath, RequestContext, canonical_path
from kvweave.api.ports import Engine
from kvweave.api.routes import create_router
from kvweave.prompt import ChunkRegistry, PromptBuilder

log = logging.getLogger(__name__)


def create_app(
    engine: Engine,
    prompt_builder: PromptBuilder,
    registry: ChunkRegistry,
    metrics_endpoint: Callable[[], bytes],
    accounts: Accounts,
) -> FastAPI:
    """The app that serves `engine` in OpenAI's format.

    Every endpoint answers under `/v1`, `/`, `/api` and `/api/v1`, with and without a
    trailing slash, and every error is in OpenAI's format. Starting and stopping the engine is the
    caller's.

    Args:
        engine: what answers.
        prompt_builder: makes prompts of messages; it should look into the same `registry`.
        registry: where `POST /v1/chunks` puts texts.
        metrics_endpoint: returns the metrics in Prometheus' text format.
        accounts: who may call, and where usage is recorded; started and closed by the caller.
    """
    # No schema and no docs pages: endpoints read their bodies themselves, for errors that OpenAI
    # clients understand, and the pages would load scripts from the network.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    router = create_router(engine, prompt_builder, registry, metrics_endpoint, accounts)
    app.include_router(router)
    app.add_middleware(Authentication, accounts=accounts)
    app.add_middleware(CanonicalPath)
    app.add_middleware(RequestContext)  # added last, so it is the outermost; answers errors

    endpoints = _endpoints(router)

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _route_error(request, error, endpoints).response()

    app.add_exception_handler(HTTPException, http_error)
    return app


def _endpoints(router: APIRouter) -> list[str]:
    """`POST /v1/chat/completions` and so on."""
    return [
        f"{method} /v1{route.path}"
        for route in router.routes
        if isinstance(route, Route)
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
