"""Requests to a model: who answers them, and how the answer is sent."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pydantic_core
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kvweave.accounts import Caller
from kvweave.api.body import parse_object, read_bytes
from kvweave.api.disconnect import prime, while_connected
from kvweave.api.errors import ApiError, model_not_allowed, model_not_found
from kvweave.api.event_stream import EventStream
from kvweave.api.exchange import Exchange, caller_of, exchange_of, reserve
from kvweave.api.local import PROVIDER_NAME, LocalModel
from kvweave.config import ServerConfig
from kvweave.engine import EngineOverloaded, EngineStopped
from kvweave.formats import (
    MESSAGES,
    AnswerBuilder,
    AnswerEvent,
    ClientFormat,
    StreamWriter,
    shown,
)
from kvweave.providers import Channel, Incoming, answer_tokens, prompt_tokens

log = logging.getLogger(__name__)


class Answering:
    """Answers requests with the engine of this server, or with a provider.

    The engine comes first where both serve a model; a provider takes over while it is busy.
    """

    def __init__(
        self, local: LocalModel | None, channel: Channel | None, limits: ServerConfig
    ) -> None:
        self._local = local
        self._channel = channel
        self._limits = limits

    def models(self, caller: Caller) -> list[str]:
        """The models that the caller may use, the engine's first."""
        names = [self._local.name] if self._local else []
        names += self._channel.router.models if self._channel else []
        return [name for name in dict.fromkeys(names) if caller.may_use(name)]

    def check_model(self, model: str, caller: Caller) -> None:
        """Raise `ApiError` if there is no such model, or not for this caller."""
        allowed = self.models(caller)
        if model in allowed:
            return
        if model in self.models(Caller.anonymous()):
            raise model_not_allowed(model)
        raise model_not_found(model, allowed)

    async def answer(self, request: Request, format: ClientFormat) -> Response:
        """The answer to a request in `format`, whole or streamed."""
        exchange = exchange_of(request.scope)
        incoming = await self._incoming(request, format, exchange)
        if self._is_local(incoming.model):
            try:
                return await self._from_engine(request, incoming, exchange)
            except (EngineOverloaded, EngineStopped):
                if not self._has_provider(incoming.model):
                    raise
        expected = prompt_tokens(incoming.raw, incoming.body)
        exchange.expects(expected)
        await reserve(request.scope, expected + answer_tokens(incoming.body))
        return await self._from_provider(request, incoming, exchange)

    async def embeddings(self, request: Request, format: ClientFormat) -> Response:
        """Embeddings, which only providers make."""
        exchange = exchange_of(request.scope)
        incoming = await self._incoming(request, format, exchange)
        if not self._has_provider(incoming.model):
            raise ApiError(
                400,
                f"The model {shown(incoming.model)} makes no embeddings.",
                param="model",
                code="unsupported_endpoint",
            )
        assert self._channel is not None
        expected = prompt_tokens(incoming.raw, incoming.body)
        exchange.expects(expected)
        await reserve(request.scope, expected)
        async with while_connected(request.receive):
            raw = await self._channel.passed("embeddings", incoming.model, incoming.body, exchange)
        return _json(raw)

    async def count_tokens(self, request: Request) -> Response:
        """The length of a prompt in Anthropic's format."""
        caller = caller_of(request.scope)
        unrecorded = Exchange("messages.count_tokens", caller)
        incoming = await self._incoming(request, MESSAGES, unrecorded)
        counted = MESSAGES.read_count_request(incoming.body)
        if self._is_local(incoming.model):
            assert self._local is not None
            tokens = await self._local.count_tokens(counted, caller.tenant)
            return JSONResponse({"input_tokens": tokens})
        assert self._channel is not None
        providers = self._channel.router.serving(incoming.model)
        if any("count_tokens" in provider.endpoints for provider in providers):
            async with while_connected(request.receive):
                raw = await self._channel.passed(
                    "count_tokens", incoming.model, incoming.body, unrecorded
                )
            return _json(raw)
        # The provider says only afterwards; clients need a number to plan with.
        headers = {"x-kvweave-token-count": "estimate"}
        estimate = prompt_tokens(incoming.raw, incoming.body)
        return JSONResponse({"input_tokens": estimate}, headers=headers)

    async def _incoming(
        self, request: Request, format: ClientFormat, exchange: Exchange
    ) -> Incoming:
        raw = await read_bytes(request, self._limits)
        body = parse_object(raw)
        model = body.get("model")
        if model is None:
            raise ApiError(400, "model: is missing", param="model", code="invalid_value")
        if not isinstance(model, str):
            message = f"model: input should be a valid string, got {shown(model)}"
            raise ApiError(400, message, param="model", code="invalid_value")
        if model.strip() != model and model.strip():
            model = body["model"] = model.strip()  # pasted
            raw = b""
        exchange.model = model
        self._check_size(body)
        self.check_model(model, exchange.caller)
        return Incoming(format, body, raw or _dump(body), _headers(request))

    def _check_size(self, body: dict[str, Any]) -> None:
        for name in ("messages", "input"):
            items = body.get(name)
            if isinstance(items, list) and len(items) > self._limits.max_messages:
                raise ApiError(
                    400,
                    f"{name}: holds {len(items)} items, and at most {self._limits.max_messages} "
                    "are taken",
                    param=name,
                    code="too_many_messages",
                )

    def _is_local(self, model: str) -> bool:
        return self._local is not None and model == self._local.name

    def _has_provider(self, model: str) -> bool:
        return self._channel is not None and model in self._channel.router.models

    async def _from_engine(
        self, request: Request, incoming: Incoming, exchange: Exchange
    ) -> Response:
        assert self._local is not None
        exchange.asked(PROVIDER_NAME)
        tenant = exchange.caller.tenant
        needed, events = await self._local.answer(incoming.format, incoming.body, tenant, exchange)
        await reserve(request.scope, needed)
        async with AsyncExitStack() as stack, while_connected(request.receive):
            await stack.enter_async_context(aclosing(events))
            # Errors come before the first event: wait for it before choosing the response's status.
            primed = await prime(events)
            if incoming.stream:
                stack.pop_all()  # the stream closes them
            else:
                builder = AnswerBuilder()
                async for event in primed:
                    exchange.told(event)
                    builder.add(event)
        if not incoming.stream:
            return JSONResponse(incoming.format.write_answer(builder.answer(), incoming.body))
        writer = incoming.format.stream_writer(incoming.body)
        return EventStream(
            _written(primed, writer, exchange),
            source=events,
            error_event=writer.error,
            exchange=exchange,
            request_id=request.state.request_id,
            timeout_s=self._limits.client_timeout_sec,
        )

    async def _from_provider(
        self, request: Request, incoming: Incoming, exchange: Exchange
    ) -> Response:
        assert self._channel is not None
        async with while_connected(request.receive):
            if not incoming.stream:
                return _json(await self._channel.whole(incoming, exchange))
            pieces = await self._channel.stream(incoming, exchange)
        return EventStream(
            pieces,
            source=pieces,
            error_event=incoming.format.stream_writer(incoming.body).error,
            exchange=exchange,
            request_id=request.state.request_id,
            timeout_s=self._limits.client_timeout_sec,
        )


async def _written(
    events: AsyncIterator[AnswerEvent], writer: StreamWriter, exchange: Exchange
) -> AsyncGenerator[bytes, None]:
    async for event in events:
        exchange.told(event)
        for piece in writer.write(event):
            yield piece


def _headers(request: Request) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.raw}


def _json(raw: bytes) -> Response:
    return Response(raw, media_type="application/json")


def _dump(body: dict[str, Any]) -> bytes:
    return pydantic_core.to_json(body)
