"""Getting an answer from the providers: in order, with retries, whole or streamed."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import Any, TypeVar

import aiohttp
import pydantic_core

from kvweave.engine import EngineOverloaded
from kvweave.formats import (
    BACKEND_FORMATS,
    AnswerEvent,
    BackendErrorEvent,
    BackendFormat,
    BrokenEventStream,
    EventSplitter,
    FormatError,
    ServerEvent,
    as_events,
    error_in,
)
from kvweave.providers.errors import ProviderError
from kvweave.providers.observer import Observer
from kvweave.providers.outgoing import Incoming, Outgoing, outgoing
from kvweave.providers.passing import PassedStream, missing_key, usage_of
from kvweave.providers.provider import PATHS, Provider
from kvweave.providers.router import Router
from kvweave.providers.wire import Wire, bad_answer, read_whole, reported_error

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 8.0

# The second stands for a response that does not say what it is.
_STREAMS = ("text/event-stream", "application/octet-stream")

ResultT = TypeVar("ResultT")


class AnswerStream:
    """The pieces of an answer whose first is there already. Has to be closed."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        self._first: bytes | None = first
        self._rest = rest

    def __aiter__(self) -> AnswerStream:
        return self

    async def __anext__(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await anext(self._rest)

    async def aclose(self) -> None:
        """Ends the request at the provider."""
        await self._rest.aclose()


class Channel:
    """Asks providers. One for a server; nothing of a request stays in it."""

    def __init__(self, router: Router, wire: Wire | None = None) -> None:
        self.router = router
        self._wire = wire or Wire()

    async def close(self) -> None:
        """Close all connections."""
        await self._wire.close()

    async def whole(self, incoming: Incoming, observer: Observer) -> bytes:
        """The whole answer, in the client's format.

        Raises:
            ProviderError: no provider answered; says what the last one said.
            FormatError: the request cannot be converted.
        """

        async def ask(provider: Provider) -> bytes:
            sent = outgoing(incoming, provider)
            async with _turn(provider):
                observer.asked(provider.name)
                post = self._wire.post(provider, sent.path, sent.payload, incoming.headers)
                async with post as response:
                    raw = await read_whole(provider, response)
            return _whole_answer(provider, incoming, sent, raw, observer)

        return await self._in_turn(self.router.serving(incoming.model), ask, observer)

    async def stream(self, incoming: Incoming, observer: Observer) -> AnswerStream:
        """The answer as server-sent events in the client's format, each as soon as it is there.

        Another provider is asked only until the first event came.

        Raises:
            ProviderError, FormatError: as for `whole`, before the first event; after it the same
                from the iterator.
        """

        async def ask(provider: Provider) -> AnswerStream:
            sent = outgoing(incoming, provider)
            events = self._events(provider, incoming, sent, observer)
            try:
                first = await anext(events)
            except StopAsyncIteration:
                raise bad_answer(provider, "is an empty stream") from None
            except BaseException:
                await events.aclose()
                raise
            return AnswerStream(first, events)

        return await self._in_turn(self.router.serving(incoming.model), ask, observer)

    async def passed(
        self, endpoint: str, model: str, body: dict[str, Any], observer: Observer
    ) -> bytes:
        """The answer of an endpoint that is only passed through, such as `embeddings`.

        Raises:
            ProviderError: no provider answered.
        """

        able = [p for p in self.router.serving(model) if endpoint in p.endpoints]
        if not able:
            names = ", ".join(provider.name for provider in self.router.serving(model))
            raise ProviderError(
                400,
                f"No provider of this model has {PATHS[endpoint]}; it is served by {names}.",
                code="unsupported_endpoint",
                provider=names,
            )

        async def ask(provider: Provider) -> bytes:
            payload = pydantic_core.to_json(body | {"model": provider.models[model]})
            async with _turn(provider):
                observer.asked(provider.name)
                async with self._wire.post(provider, PATHS[endpoint], payload, {}) as response:
                    raw = await read_whole(provider, response)
            answer = _answer_object(provider, raw, endpoint)
            observer.used(usage_of("embeddings", answer, raw))
            return raw

        return await self._in_turn(able, ask, observer)

    async def _in_turn(
        self,
        providers: list[Provider],
        ask: Callable[[Provider], Awaitable[ResultT]],
        observer: Observer,
    ) -> ResultT:
        """What the first provider answers that can; tries them all, then those again that may."""
        last: ProviderError | None = None
        for attempt in range(1 + max(provider.max_retries for provider in providers)):
            if attempt:
                await asyncio.sleep(_delay(attempt, last))
            for provider in tuple(providers):
                try:
                    result = await ask(provider)
                except ProviderError as error:
                    observer.turned_away()
                    last = error
                    if not error.elsewhere:
                        provider.health.succeeded()  # it is there, and right to refuse
                        raise
                    provider.health.failed(error.message, retry_after_s=error.retry_after_s)
                    log.warning("%s", error.message)
                    if not error.again or attempt >= provider.max_retries:
                        providers.remove(provider)
                except EngineOverloaded as error:
                    last = _overloaded(provider, error)
                    providers.remove(provider)
                else:
                    provider.health.succeeded()
                    return result
            if not providers:
                break
        assert last is not None
        raise last

    async def _events(
        self, provider: Provider, incoming: Incoming, sent: Outgoing, observer: Observer
    ) -> AsyncGenerator[bytes, None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(_turn(provider))
            observer.asked(provider.name)
            post = self._wire.post(provider, sent.path, sent.payload, incoming.headers)
            response = await stack.enter_async_context(post)
            if response.content_type not in _STREAMS:
                # It does not stream, or this is an error that came with status 200.
                raw = await read_whole(provider, response)
                for piece in _unstreamed(provider, incoming, sent, raw, observer):
                    yield piece
                return
            pieces = (
                _passed(provider, incoming, sent, response, observer)
                if sent.backend is None
                else _converted(provider, incoming, sent.backend, response, observer)
            )
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece


def _turn(provider: Provider) -> AbstractAsyncContextManager[None]:
    return provider.admission.admit(1)


def _delay(attempt: int, last: ProviderError | None) -> float:
    """Seconds to wait: doubling, spread, and no shorter than the provider asked for."""
    delay = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)
    asked = last.retry_after_s if last is not None and last.retry_after_s else 0.0
    return max(delay, min(asked, LONGEST_DELAY_S))


def _overloaded(provider: Provider, error: EngineOverloaded) -> ProviderError:
    return ProviderError(
        429,
        f"Too many requests wait for the provider {provider.name}; "
        f"try again in {error.retry_after_s:.0f} s.",
        code="too_many_requests",
        provider=provider.name,
        retry_after_s=error.retry_after_s,
    )


def _answer_object(provider: Provider, raw: bytes, endpoint: str) -> dict[str, Any]:
    """A whole answer, parsed.

    Raises:
        ProviderError: it is an error, or no answer at all.
    """
    body = _object_in(raw)
    if body is None:
        raise bad_answer(provider, "is not a JSON object")
    found = error_in(body)
    if found is not None:
        raise reported_error(provider, *found)
    missing = missing_key(endpoint, body)
    if missing is not None:
        raise bad_answer(provider, f"has no {missing!r}")
    return body


def _whole_answer(
    provider: Provider, incoming: Incoming, sent: Outgoing, raw: bytes, observer: Observer
) -> bytes:
    endpoint = sent.backend.name if sent.backend else incoming.format.name
    body = _answer_object(provider, raw, endpoint)
    if sent.backend is None:
        observer.first_token()
        observer.used(usage_of(endpoint, body, raw))
        return raw
    try:
        answer = sent.backend.read_answer(body)
    except FormatError as error:
        raise bad_answer(provider, f"is not valid: {error}") from None
    except BackendErrorEvent as error:
        raise reported_error(provider, error.message, error.code) from None
    for event in as_events(answer):
        observer.told(event)
    return pydantic_core.to_json(incoming.format.write_answer(answer, incoming.body))


def _unstreamed(
    provider: Provider, incoming: Incoming, sent: Outgoing, raw: bytes, observer: Observer
) -> list[bytes]:
    """A whole answer as the stream that was asked for."""
    name = sent.backend.name if sent.backend else incoming.format.name
    body = _answer_object(provider, raw, name)
    reader = next((known for known in BACKEND_FORMATS if known.name == name), None)
    if reader is None:
        raise bad_answer(provider, "is no stream, though one was asked for")
    try:
        answer = reader.read_answer(body)
    except FormatError as error:
        raise bad_answer(provider, f"is not valid: {error}") from None
    writer = incoming.format.stream_writer(incoming.body)
    pieces: list[bytes] = []
    for event in as_events(answer):
        observer.told(event)
        pieces += writer.write(event)
    return pieces


async def _passed(
    provider: Provider,
    incoming: Incoming,
    sent: Outgoing,
    response: aiohttp.ClientResponse,
    observer: Observer,
) -> AsyncGenerator[bytes, None]:
    """A stream in the client's own format, as it comes."""
    watch = PassedStream(incoming.format.name, drop_usage=sent.drop_usage)
    splitter = EventSplitter()
    sent_any = False
    try:
        async for piece in response.content.iter_any():
            out: list[bytes] = []
            for event in _split(provider, splitter, piece):
                if b'"error"' in event.data and (error := _told_error(provider, event.data)):
                    if watch.started and out:
                        yield b"".join(out)
                    raise error
                out.append(watch.see(event))
            if watch.started:
                observer.first_token()
            if joined := b"".join(out):
                sent_any = True
                yield joined
        for event in splitter.finish():
            # It came without its empty line: whole, or cut off in the middle.
            if event.data.strip() == b"[DONE]" or _object_in(event.data) is not None:
                yield watch.see(event)
    finally:
        observer.used(watch.usage())
    if not watch.ended:
        problem = "broke off before its end" if sent_any else "is an empty stream"
        raise bad_answer(provider, problem)


async def _converted(
    provider: Provider,
    incoming: Incoming,
    backend: BackendFormat,
    response: aiohttp.ClientResponse,
    observer: Observer,
) -> AsyncGenerator[bytes, None]:
    """A stream in another format, converted event by event."""
    reader = backend.stream_reader()
    writer = incoming.format.stream_writer(incoming.body)
    splitter = EventSplitter()

    written: list[bytes] = []

    def convert(events: Iterable[AnswerEvent]) -> None:
        for event in events:
            observer.told(event)
            written.extend(writer.write(event))

    def taken() -> bytes:
        joined = b"".join(written)
        written.clear()
        return joined

    try:
        async for piece in response.content.iter_any():
            # What came together goes on together, and at once.
            for event in _split(provider, splitter, piece):
                convert(reader.read(event))
            if written:
                yield taken()
        for event in splitter.finish():
            convert(reader.read(event))
        convert(reader.finish())
        if written:
            yield taken()
    except (FormatError, BackendErrorEvent) as error:
        if written:
            yield taken()
        if isinstance(error, FormatError):
            raise bad_answer(provider, f"is not valid: {error}") from None
        raise reported_error(provider, error.message, error.code) from None


def _split(provider: Provider, splitter: EventSplitter, piece: bytes) -> Iterator[ServerEvent]:
    try:
        yield from splitter.feed(piece)
    except BrokenEventStream as error:
        raise bad_answer(provider, f"is not valid: {error}") from None


def _told_error(provider: Provider, data: bytes) -> ProviderError | None:
    """The error that an event tells, if it does."""
    found = error_in(_object_in(data) or {})
    return None if found is None else reported_error(provider, *found)


def _object_in(raw: bytes) -> dict[str, Any] | None:
    """A JSON object; None if it is none."""
    try:
        body = pydantic_core.from_json(raw)
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
