"""The endpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse

from kvweave.accounts import Caller, UsageSink
from kvweave.api.body import read_body
from kvweave.api.completions import ChatCompletion
from kvweave.api.disconnect import prime, until_disconnect
from kvweave.api.errors import ApiError, model_not_allowed, model_not_found
from kvweave.api.event_stream import EventStream
from kvweave.api.ports import Engine
from kvweave.api.schema import ChatCompletionRequest, ChunksRequest, ReuseParams
from kvweave.api.usage_note import UsageNote
from kvweave.engine import SamplingParams
from kvweave.prompt import (
    ChunkRegistry,
    PromptBuilder,
    chunk_digest,
    parse_documents,
    parse_messages,
)

DEFAULT_MAX_TOKENS = 1024

# Clients and load balancers probe with HEAD.
_READ = ["GET", "HEAD"]


def create_router(
    engine: Engine,
    prompt_builder: PromptBuilder,
    registry: ChunkRegistry,
    metrics_endpoint: Callable[[], bytes],
    usage: UsageSink,
) -> APIRouter:
    """The routes at their canonical paths, without a `/v1`."""
    router = APIRouter(default_response_class=JSONResponse)
    started = int(time.time())

    def check_model(name: str, caller: Caller) -> None:
        if name != engine.model_name:
            raise model_not_found(name, [engine.model_name])
        if not caller.may_use(name):
            raise model_not_allowed(name)

    @router.post("/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        caller: Caller = request.state.caller
        with UsageNote(usage, caller, "chat.completions", "kvweave") as note:
            return await answer(request, caller, note)

    async def answer(request: Request, caller: Caller, note: UsageNote) -> Response:
        body = await read_body(request, ChatCompletionRequest)
        note.model = body.model
        check_model(body.model, caller)
        messages = parse_messages(body.messages)
        documents = parse_documents(body.documents)
        # Tokenising a long prompt takes milliseconds that other requests' streams would wait.
        build = partial(prompt_builder.build, messages, documents, tenant=caller.tenant)
        prompt = await to_thread.run_sync(build)
        note.prompt_tokens = len(prompt)

        room = engine.max_model_len - len(prompt)
        params = SamplingParams(
            max_tokens=body.token_limit or max(1, min(DEFAULT_MAX_TOKENS, room)),
            temperature=1.0 if body.temperature is None else body.temperature,
            top_p=1.0 if body.top_p is None else body.top_p,
            seed=body.seed,
            stop=tuple(body.stop or ()),
        )
        await request.state.visit.reserve(len(prompt) + params.max_tokens)
        reuse = (body.kvweave or ReuseParams()).options()
        generated = engine.generate(prompt, params, reuse, tenant=caller.tenant)
        answer = note.follow(until_disconnect(generated, request.receive))
        # Errors come before the first delta: wait for it before choosing the response's status.
        deltas = await prime(answer)
        completion = ChatCompletion(engine.model_name, len(prompt))
        if not body.stream:
            return JSONResponse(await completion.whole(deltas))
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        return EventStream(
            completion.events(deltas, include_usage=include_usage),
            source=answer,
            request_id=request.state.request_id,
        )

    @router.post("/chunks")
    async def create_chunks(request: Request) -> Response:
        caller: Caller = request.state.caller
        with UsageNote(usage, caller, "chunks", "kvweave") as note:
            response = await warm(request, caller, note)
            note.done()
            return response

    async def warm(request: Request, caller: Caller, note: UsageNote) -> Response:
        note.model = engine.model_name
        if not caller.may_use(engine.model_name):
            raise model_not_allowed(engine.model_name)
        body = await read_body(request, ChunksRequest)
        documents = parse_documents(body.documents)
        texts = [(chunk.text, chunk.id) for chunk in body.chunks]
        texts += [(document.chunk_text, document.id) for document in documents]
        if not texts:
            raise ApiError(400, "chunks: must hold at least one text", param="chunks")

        def encode() -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
            return (
                prompt_builder.prefix_ids(body.system, tenant=caller.tenant),
                [prompt_builder.encode_chunk(text) for text, _ in texts],
            )

        prefix_ids, encoded = await to_thread.run_sync(encode)
        note.prompt_tokens = sum(map(len, encoded))
        await request.state.visit.reserve(note.prompt_tokens)
        for (text, _), token_ids in zip(texts, encoded, strict=True):
            if len(prefix_ids) + len(token_ids) > engine.max_model_len:
                raise ApiError(
                    400,
                    f"A chunk of {len(token_ids)} tokens, after a system prefix of "
                    f"{len(prefix_ids)}, does not fit the context of {engine.max_model_len}; "
                    f"split it. It begins {text[:40]!r}.",
                    param="chunks",
                    code="context_length_exceeded",
                )
        data = []
        reusable = []
        for (text, chunk_id), token_ids in zip(texts, encoded, strict=True):
            chunk_id = chunk_id or chunk_digest(text)
            data.append({"id": chunk_id, "tokens": len(token_ids)})
            # What is too short to be a chunk in a prompt is not worth keeping as one.
            if len(token_ids) >= prompt_builder.min_chunk_tokens:
                registry.add(text, chunk_id, tenant=caller.tenant)
                reusable.append(token_ids)
        await engine.warm(prefix_ids, list(dict.fromkeys(reusable)), tenant=caller.tenant)
        return JSONResponse({"object": "list", "data": data})

    def model_object() -> dict[str, str | int]:
        return {
            "id": engine.model_name,
            "object": "model",
            "created": started,
            "owned_by": "kvweave",
            "max_model_len": engine.max_model_len,
        }

    @router.api_route("/models", methods=_READ)
    async def list_models(request: Request) -> Response:
        allowed = request.state.caller.may_use(engine.model_name)
        return JSONResponse({"object": "list", "data": [model_object()] if allowed else []})

    @router.api_route("/models/{model:path}", methods=_READ)
    async def retrieve_model(request: Request, model: str) -> Response:
        check_model(model, request.state.caller)
        return JSONResponse(model_object())

    @router.api_route("/health", methods=_READ)
    async def health() -> Response:
        return JSONResponse(
            {
                "status": "ok",
                "model": engine.model_name,
                "pending_chunks": engine.pending_chunks(),
            }
        )

    @router.api_route("/metrics", methods=_READ)
    def metrics() -> Response:
        return Response(metrics_endpoint(), media_type=CONTENT_TYPE_LATEST)

    return router
