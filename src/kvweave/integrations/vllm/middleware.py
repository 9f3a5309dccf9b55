"""Request middleware for vLLM's server: chunks are found in messages, as on the embedded engine.

Set with `--middleware kvweave.integrations.vllm.middleware.ChunkMiddleware`, together with
`--tokenizer-mode kvweave`.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kvweave.integrations.vllm import formats
from kvweave.integrations.vllm.access import may_ask
from kvweave.integrations.vllm.bodies import (
    BadRequest,
    json_object,
    parsed,
    read,
    refusal,
    replay,
)
from kvweave.integrations.vllm.marks import PARAMS_KEY, PromptMarks, UnicodeText
from kvweave.integrations.vllm.plugin import TOKENIZER_MODE
from kvweave.integrations.vllm.settings import settings_from
from kvweave.integrations.vllm.tickets import TICKETS
from kvweave.prompt import (
    ChunkRegistry,
    Prompt,
    PromptBuilder,
    PromptError,
    Segment,
    UnsupportedTokenizer,
    chunk_digest,
    parse_documents,
)
from kvweave.reuse import Mode, UnknownSelector, selector_named

log = logging.getLogger("vllm.kvweave")

#: path -> (messages of a body, put a ticket in their place)
_FORMATS: dict[str, tuple[Callable[..., Any], Callable[..., None]]] = {
    "/v1/chat/completions": (formats.chat_messages, formats.chat_ticket),
    "/v1/messages": (formats.anthropic_messages, formats.anthropic_ticket),
    "/v1/responses": (formats.response_messages, formats.response_ticket),
}


#: vLLM then keeps what it was sent for later turns: it must be the conversation, not a ticket.
_STORES_RESPONSES = os.environ.get("VLLM_ENABLE_RESPONSES_API_STORE", "0") not in ("", "0")


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
    id: UnicodeText | None = None


class ChunksRequest(BaseModel):
    """Body of `POST /v1/chunks`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    chunks: list[ChunkText] = Field(min_length=1)
    system: UnicodeText | None = None


class ChunkMiddleware:
    """Turns messages with chunks into prompts whose chunks have ids of their own.

    A request without chunks, or with anything that only vLLM understands (tools, images, another
    template), goes through as it came.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._registry = ChunkRegistry()
        self._builder: PromptBuilder | None = None
        self._answers = {"/v1/chunks": self._register, "/v1/completions": self._token_ids} | {
            path: partial(self._chat, messages_of=messages_of, put_ticket=put_ticket)
            for path, (messages_of, put_ticket) in _FORMATS.items()
            if not (path == "/v1/responses" and _STORES_RESPONSES)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        answer = self._answers.get(path)
        ours = scope["type"] == "http" and scope["method"] == "POST" and answer is not None
        if not ours or not may_ask(scope):  # whom vLLM refuses, it refuses itself
            await self._app(scope, receive, send)
            return
        assert answer is not None
        try:
            await answer(scope, receive, send)
        except (BadRequest, PromptError, UnknownSelector) as error:
            known = error if isinstance(error, BadRequest) else BadRequest(str(error))
            await refusal(known)(scope, receive, send)

    async def _chat(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        messages_of: Callable[..., Any],
        put_ticket: Callable[..., None],
    ) -> None:
        raw = await read(receive)
        body = json_object(raw)
        if body is None or not ({"kvweave", "documents"} & body.keys() or formats.is_plain(body)):
            await self._app(scope, replay(_untenanted(raw, body), receive), send)
            return
        reuse = parsed(ReuseParams, body.pop(PARAMS_KEY, None) or {}, PARAMS_KEY)
        selector_named(reuse.selector or "none")
        prompt = await to_thread.run_sync(self._prompt, scope["app"], body, messages_of)
        params = body.get("kv_transfer_params")
        params = dict(params) if isinstance(params, dict) else {}
        params.pop(PARAMS_KEY, None)  # ours to say
        if reuse.mode == "full":  # nothing at all is to be reused
            body["cache_salt"] = uuid.uuid4().hex
        if prompt is None:
            if params or "kv_transfer_params" in body:
                body["kv_transfer_params"] = params
            await self._app(scope, replay(json.dumps(body).encode(), receive), send)
            return
        marks = PromptMarks.of(prompt, **reuse.model_dump())
        body["kv_transfer_params"] = params | marks.to_params()
        body.pop("documents", None)
        ticket = TICKETS.issue(prompt.token_ids)
        put_ticket(body, ticket)
        try:
            await self._app(scope, replay(json.dumps(body).encode(), receive), send)
        finally:
            TICKETS.revoke(ticket)

    def _prompt(
        self, app: Any, body: dict[str, Any], messages_of: Callable[..., Any]
    ) -> Prompt | None:
        """The prompt of this body, or None if it is better left to vLLM.

        Documents are never left to a chat template that has no place for them: it would leave them
        out without a word.
        """
        documents = parse_documents(body.get("documents"))
        has_documents = bool(documents) or formats.has_document_parts(body)
        try:
            builder = self._builder_of(app)
        except UnsupportedTokenizer as error:
            if has_documents:
                raise BadRequest(f"documents: {error}") from None
            return None
        if not formats.is_plain(body):
            if documents and not builder.renders_documents:
                raise BadRequest(
                    "documents: cannot be put into the prompt together with "
                    f"{formats.not_plain_because(body)!r}, and the model's chat template does not "
                    "place them; send them as text of a message"
                )
            return None
        try:
            template_kwargs = formats.template_kwargs(body, _default_template_kwargs(app))
            prompt = builder.build(messages_of(body), documents, template_kwargs=template_kwargs)
        except PromptError:
            if has_documents:
                raise
            return None  # vLLM understands more, or says what is wrong in its own format
        chunks = any(segment.role == "chunk" for segment in prompt.segments)
        return prompt if chunks or has_documents else None

    async def _token_ids(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Prompts that a client has tokenised itself."""
        raw = await read(receive)
        await self._app(scope, replay(_untenanted(raw, json_object(raw)), receive), send)

    async def _register(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/chunks`: register texts, and have their chunk KV computed."""
        body = json_object(await read(receive))
        if body is None:
            raise BadRequest("the body must be a JSON object")
        request = parsed(ChunksRequest, body, "")
        try:
            data = await self._warm(scope["app"], request)
        except UnsupportedTokenizer as error:
            raise BadRequest(str(error)) from None
        await JSONResponse({"object": "list", "data": data})(scope, receive, send)

    async def _warm(self, app: Any, request: ChunksRequest) -> list[dict[str, Any]]:
        builder = self._builder_of(app)

        def encode() -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
            ids = [builder.encode_chunk(chunk.text) for chunk in request.chunks]
            defaults = _default_template_kwargs(app)
            return builder.prefix_ids(request.system, template_kwargs=defaults), ids

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
            tokenizer = cached_tokenizer_from_config(vllm_config.model_config)
            if template := app.state.args.chat_template:
                is_file = len(template) < 4096 and Path(template).is_file()
                tokenizer.chat_template = Path(template).read_text() if is_file else template
            self._builder = PromptBuilder(
                tokenizer,
                min_chunk_tokens=settings.min_chunk_tokens,
                order_chunks=settings.order_chunks,
                registry=self._registry,
            )
        return self._builder


def _default_template_kwargs(app: Any) -> dict[str, Any]:
    """What this server's chat template gets where a request does not say."""
    return getattr(app.state.args, "default_chat_template_kwargs", None) or {}


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


def _untenanted(raw: bytes, body: dict[str, Any] | None) -> bytes:
    """The body without a tenant: whose chunks these are is not the client's to say."""
    params = (body or {}).get("kv_transfer_params")
    marks = params.get(PARAMS_KEY) if isinstance(params, dict) else None
    if not isinstance(marks, dict) or marks.pop("tenant", None) is None:
        return raw
    return json.dumps(body).encode()
