"""Request middleware for vLLM's server: chunks are found in messages, as on the embedded engine.

Set with `--middleware kvweave.integrations.vllm.middleware.ChunkMiddleware`, together with
`--tokenizer-mode kvweave`.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from typing import Any

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvweave.integrations.vllm import formats
from kvweave.integrations.vllm.marks import PARAMS_KEY, PromptMarks
from kvweave.integrations.vllm.plugin import TOKENIZER_MODE
from kvweave.integrations.vllm.settings import settings_from
from kvweave.integrations.vllm.tickets import TICKETS
from kvweave.prompt import (
    ChunkRegistry,
    Prompt,
    PromptBuilder,
    PromptError,
    Segment,
    chunk_digest,
    parse_documents,
)
from kvweave.reuse import Mode, UnknownSelector, selector_named

log = logging.getLogger("vllm.kvweave")

_MAX_BODY_BYTES = 64 * 2**20

#: path -> (messages of a body, put a ticket in their place)
_FORMATS: dict[str, tuple[Callable[..., Any], Callable[..., None]]] = {
    "/v1/chat/completions": (formats.chat_messages, formats.chat_ticket),
    "/v1/messages": (formats.anthropic_messages, formats.anthropic_ticket),
    "/v1/responses": (formats.response_messages, formats.response_ticket),
}


class ReuseParams(BaseModel):
    """`kvweave` of a request body."""

    model_config = ConfigDict(strict=True, extra="forbid")

    mode: Mode = "blend"
    recompute_ratio: float | None = Field(default=None, ge=0, le=1)
    selector: str | None = None
    store_chunks: bool = True


class ChunkText(BaseModel):
    """One text to register."""

    model_config = ConfigDict(strict=True)

    text: str = Field(min_length=1)
    id: str | None = None


class ChunksRequest(BaseModel):
    """Body of `POST /v1/chunks`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    chunks: list[ChunkText] = Field(min_length=1)
    system: str | None = None


class BadRequest(Exception):
    """A body that cannot be used; the message names the field."""


class ChunkMiddleware:
    """Turns messages with chunks into prompts whose chunks have ids of their own.

    A request without chunks, or with anything that only vLLM understands (tools, images, another
    template), goes through as it came.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._registry = ChunkRegistry()
        self._builder: PromptBuilder | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif path == "/v1/chunks":
            await self._register(scope, receive, send)
        elif path in _FORMATS:
            await self._chat(scope, receive, send, *_FORMATS[path])
        elif path == "/v1/completions":
            await self._token_ids(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _chat(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        messages_of: Callable[..., Any],
        put_ticket: Callable[..., None],
    ) -> None:
        raw = await _read(receive)
        body = _object(raw)
        if body is None or not ({"kvweave", "documents"} & body.keys() or formats.is_plain(body)):
            await self._app(scope, _replay(raw, receive), send)
            return
        try:
            reuse = _parsed(ReuseParams, body.pop(PARAMS_KEY, None) or {}, PARAMS_KEY)
            selector_named(reuse.selector or "none")
            prompt = await to_thread.run_sync(self._prompt, scope["app"], body, messages_of)
        except (BadRequest, UnknownSelector) as error:
            await _refuse(str(error))(scope, receive, send)
            return
        params = body.get("kv_transfer_params")
        params = dict(params) if isinstance(params, dict) else {}
        params.pop(PARAMS_KEY, None)  # ours to say
        if reuse.mode == "full":  # nothing at all is to be reused
            body["cache_salt"] = uuid.uuid4().hex
        if prompt is None:
            if params or "kv_transfer_params" in body:
                body["kv_transfer_params"] = params
            await self._app(scope, _replay(json.dumps(body).encode(), receive), send)
            return
        marks = PromptMarks.of(prompt, **reuse.model_dump())
        body["kv_transfer_params"] = params | marks.to_params()
        body.pop("documents", None)
        ticket = TICKETS.issue(prompt.token_ids)
        put_ticket(body, ticket)
        try:
            await self._app(scope, _replay(json.dumps(body).encode(), receive), send)
        finally:
            TICKETS.revoke(ticket)

    def _prompt(
        self, app: Any, body: dict[str, Any], messages_of: Callable[..., Any]
    ) -> Prompt | None:
        """The prompt of this body, or None if it is better left to vLLM."""
        try:
            documents = parse_documents(body.get("documents"))
        except PromptError as error:
            raise BadRequest(str(error)) from None
        if not formats.is_plain(body):
            return None
        try:
            prompt = self._builder_of(app).build(messages_of(body), documents)
        except PromptError:
            return None  # vLLM understands more, or says what is wrong in its own format
        return prompt if any(s.role == "chunk" for s in prompt.segments) else None

    async def _token_ids(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Prompts that a client has tokenised itself; whose they are is not the client's to say."""
        raw = await _read(receive)
        body = _object(raw)
        params = (body or {}).get("kv_transfer_params")
        marks = params.get(PARAMS_KEY) if isinstance(params, dict) else None
        if isinstance(marks, dict) and marks.pop("tenant", None) is not None:
            raw = json.dumps(body).encode()
        await self._app(scope, _replay(raw, receive), send)

    async def _register(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/chunks`: register texts, and have their chunk KV computed."""
        body = _object(await _read(receive))
        try:
            if body is None:
                raise BadRequest("the body must be a JSON object")
            request = _parsed(ChunksRequest, body, "")
            data = await self._warm(scope["app"], request)
        except (BadRequest, PromptError) as error:
            await _refuse(str(error))(scope, receive, send)
            return
        await JSONResponse({"object": "list", "data": data})(scope, receive, send)

    async def _warm(self, app: Any, request: ChunksRequest) -> list[dict[str, Any]]:
        builder = self._builder_of(app)

        def encode() -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
            ids = [builder.encode_chunk(chunk.text) for chunk in request.chunks]
            return builder.prefix_ids(request.system), ids

        prefix, encoded = await to_thread.run_sync(encode)
        longest = app.state.vllm_config.model_config.max_model_len - 2
        data: list[dict[str, Any]] = []
        groups: list[list[Segment]] = []
        room = 0
        for chunk, ids in zip(request.chunks, encoded, strict=True):
            chunk_id = chunk.id or chunk_digest(chunk.text)
            if len(prefix) + len(ids) > longest:
                raise BadRequest(
                    f"chunks: {chunk.text[:40]!r} has {len(ids)} tokens and does not fit the "
                    "model's context; split it"
                )
            data.append({"id": chunk_id, "tokens": len(ids)})
            if len(ids) < builder.min_chunk_tokens:
                continue
            self._registry.add(chunk.text, chunk_id)
            if len(ids) > room:
                groups.append([])
                room = longest - len(prefix)
            groups[-1].append(Segment("chunk", ids, chunk_id))
            room -= len(ids)
        for group in groups:
            await _compute(app, prefix, group)
        return data

    def _builder_of(self, app: Any) -> PromptBuilder:
        """The builder for the model that this server serves; made with the first request."""
        if self._builder is None:
            from vllm.tokenizers import cached_tokenizer_from_config

            vllm_config = app.state.vllm_config
            settings = settings_from(vllm_config).prompt
            if vllm_config.model_config.tokenizer_mode != TOKENIZER_MODE:
                raise BadRequest(
                    "this server was started without --tokenizer-mode kvweave, which chunks need"
                )
            self._builder = PromptBuilder(
                cached_tokenizer_from_config(vllm_config.model_config),
                min_chunk_tokens=settings.min_chunk_tokens,
                order_chunks=settings.order_chunks,
                registry=self._registry,
            )
        return self._builder


async def _compute(app: Any, prefix: tuple[int, ...], chunks: list[Segment]) -> None:
    """A request of our own that carries these chunks: whatever is missing gets computed behind."""
    from vllm import SamplingParams

    last = chunks[-1].token_ids[-1]
    segments = [Segment("system", prefix)] if prefix else []
    prompt = Prompt((*segments, *chunks, Segment("fresh", (last,))), prefix)
    params = SamplingParams(
        max_tokens=1, extra_args={"kv_transfer_params": PromptMarks.of(prompt).to_params()}
    )
    request = {"prompt_token_ids": list(prompt.token_ids)}
    async for _ in app.state.engine_client.generate(request, params, f"chunks-{uuid.uuid4().hex}"):
        pass


def _parsed(model: type[Any], value: Any, name: str) -> Any:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in (*([name] if name else []), *first["loc"]))
        raise BadRequest(f"{where}: {first['msg']}") from None


def _refuse(message: str) -> JSONResponse:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": 400}
    return JSONResponse({"error": error}, 400)


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(raw)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if not message.get("more_body") or len(body) > _MAX_BODY_BYTES:
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives this body, and then what the connection really does."""
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
