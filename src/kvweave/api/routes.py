"""The endpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from kvweave.api.answering import Answering
from kvweave.api.chunks import create_chunks
from kvweave.api.errors import error_style
from kvweave.api.exchange import caller_of
from kvweave.api.insight import explain_prompt, show_quality
from kvweave.api.local import LocalModel
from kvweave.config import ServerConfig
from kvweave.formats import CHAT, COMPLETIONS, MESSAGES, RESPONSES
from kvweave.providers import Channel

# Clients and load balancers probe with HEAD.
_READ = ["GET", "HEAD"]


def create_router(
    local: LocalModel | None,
    channel: Channel | None,
    metrics_endpoint: Callable[[], bytes],
    limits: ServerConfig,
) -> APIRouter:
    """The routes at their canonical paths, without a `/v1`."""
    router = APIRouter(default_response_class=JSONResponse)
    answering = Answering(local, channel, limits)
    started = int(time.time())

    @router.post("/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        return await answering.answer(request, CHAT)

    @router.post("/completions")
    async def create_completion(request: Request) -> Response:
        return await answering.answer(request, COMPLETIONS)

    @router.post("/responses")
    async def create_response(request: Request) -> Response:
        return await answering.answer(request, RESPONSES)

    @router.post("/messages")
    async def create_message(request: Request) -> Response:
        return await answering.answer(request, MESSAGES)

    @router.post("/messages/count_tokens")
    async def count_tokens(request: Request) -> Response:
        return await answering.count_tokens(request)

    @router.post("/embeddings")
    async def create_embeddings(request: Request) -> Response:
        return await answering.embeddings(request, CHAT)

    if local is not None:

        @router.post("/chunks")
        async def create_chunks_(request: Request) -> Response:
            return await create_chunks(request, local, limits)

        @router.post("/explain")
        async def explain(request: Request) -> Response:
            return await explain_prompt(request, local, limits)

        @router.api_route("/quality", methods=_READ)
        async def quality() -> Response:
            return show_quality(local)

    def model_object(name: str) -> dict[str, Any]:
        own = local is not None and name == local.name
        model: dict[str, Any] = {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": "kvweave" if own or channel is None else _owner(channel, name),
        }
        if local is not None and own:
            model["max_model_len"] = local.engine.max_model_len
        return model

    def anthropic_model(name: str) -> dict[str, Any]:
        created = datetime.fromtimestamp(started, UTC).isoformat()
        return {"type": "model", "id": name, "display_name": name, "created_at": created}

    @router.api_route("/models", methods=_READ)
    async def list_models(request: Request) -> Response:
        names = answering.models(caller_of(request.scope))
        if error_style(request.scope) == "anthropic":
            data = [anthropic_model(name) for name in names]
            ends = {
                "first_id": names[0] if names else None,
                "last_id": names[-1] if names else None,
            }
            return JSONResponse({"data": data, "has_more": False, **ends})
        data = [model_object(name) for name in names]
        return JSONResponse({"object": "list", "data": data})

    @router.api_route("/models/{model:path}", methods=_READ)
    async def retrieve_model(request: Request, model: str) -> Response:
        answering.check_model(model, caller_of(request.scope))
        if error_style(request.scope) == "anthropic":
            return JSONResponse(anthropic_model(model))
        return JSONResponse(model_object(model))

    @router.api_route("/health", methods=_READ)
    async def health() -> Response:
        answer: dict[str, Any] = {"status": "ok"}
        if local is not None:
            answer["model"] = local.name
            answer["pending_chunks"] = local.engine.pending_chunks()
        if channel is not None:
            answer["providers"] = {
                provider.name: {
                    "ok": provider.health.ok,
                    "last_error": provider.health.last_error,
                    "pause_s": round(provider.health.pause_s, 1),
                }
                for provider in channel.router.providers
            }
        return JSONResponse(answer)

    @router.api_route("/metrics", methods=_READ)
    def metrics() -> Response:
        return Response(metrics_endpoint(), media_type=CONTENT_TYPE_LATEST)

    # Clients probe with it whether anybody is there.
    @router.api_route("/", methods=_READ)
    async def probe(request: Request) -> Response:
        if request.method != "HEAD":
            raise HTTPException(404)
        return Response()

    return router


def _owner(channel: Channel, model: str) -> str:
    return channel.router.serving(model)[0].name
