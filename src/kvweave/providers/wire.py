"""The HTTP of a request to a provider."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import pydantic_core

from kvweave.formats import error_in
from kvweave.providers.errors import ProviderError
from kvweave.providers.provider import Provider
from kvweave.providers.secret import redact

CONNECT_TIMEOUT_S = 5.0
# Longest whole answer, and longest error that is read.
MAX_ANSWER_BYTES = 64 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
# A connection nobody uses is closed before servers usually close it.
_KEEP_ALIVE_S = 30.0

_BUSY = {408, 409, 425, 429, 500, 502, 503, 504, 529}
# The provider's settings are wrong, not the request: another provider may answer it.
_MISCONFIGURED = {401, 402, 403, 404, 405, 407}


class Wire:
    """One pool of connections for all providers, opened with the first request."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def post(
        self, provider: Provider, path: str, payload: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; gives a response of status 200 whose body is still to be read.

        Redirects are not followed: a request goes where the configuration says, or nowhere.

        Raises:
            ProviderError: there was no such response, or it broke off while it was read.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=provider.timeout_s
        )
        try:
            async with self._open().post(
                provider.base_url + path,
                data=payload,
                headers=provider.headers(headers),
                allow_redirects=False,
                timeout=timeout,
                proxy=provider.proxy,
            ) as response:
                if response.status != 200:
                    raise await _error_of(provider, response)
                yield response
        except aiohttp.ServerTimeoutError as error:
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            limit = CONNECT_TIMEOUT_S if connecting else provider.timeout_s
            raise ProviderError(
                504,
                f"The provider {provider.name} "
                f"{'could not be reached' if connecting else 'sent nothing'} for {limit:g} s.",
                code="provider_timeout",
                provider=provider.name,
                again=connecting,
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise ProviderError(
                502,
                f"The provider {provider.name} cannot be reached: "
                f"{redact(_reason(error), provider.key)}.",
                code="provider_unreachable",
                provider=provider.name,
                again=True,
            ) from None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=2**18,
            )
        return self._session


async def read_whole(provider: Provider, response: aiohttp.ClientResponse) -> bytes:
    """The whole body.

    Raises:
        ProviderError: it is too long.
    """
    body = await _read_at_most(response, MAX_ANSWER_BYTES)
    if len(body) > MAX_ANSWER_BYTES:
        raise bad_answer(provider, f"is longer than {MAX_ANSWER_BYTES // 2**20} MB")
    return body


def bad_answer(provider: Provider, problem: str) -> ProviderError:
    """A 200 that is none."""
    return ProviderError(
        502,
        f"What the provider {provider.name} answered {redact(problem, provider.key)}.",
        code="provider_bad_answer",
        provider=provider.name,
        again=True,
    )


def reported_error(provider: Provider, message: str, code: str | None) -> ProviderError:
    """An error that came with status 200."""
    status = int(code) if code and code.isdecimal() and 400 <= int(code) < 600 else 502
    return _classified(provider, status, message, code, None)


async def _error_of(provider: Provider, response: aiohttp.ClientResponse) -> ProviderError:
    raw = await _read_at_most(response, MAX_ERROR_BYTES)
    message, code = response.reason or "", None
    try:
        body = pydantic_core.from_json(raw)
        found = error_in(body) if isinstance(body, dict) else None
    except ValueError:
        found = None
    if found is not None:
        message, code = found
    if 300 <= response.status < 400:
        message = "it redirects, which is not followed; put the final address in its base_url"
    return _classified(
        provider, response.status, message, code, _seconds(response.headers.get("retry-after"))
    )


def _classified(
    provider: Provider, status: int, message: str, code: str | None, retry_after_s: float | None
) -> ProviderError:
    message = redact(message, provider.key)
    told = f"The provider {provider.name} answered {status}: {message}"
    if status in _BUSY:
        shown = status if status in (429, 503, 504) else 502
        return ProviderError(
            shown,
            told,
            code="rate_limit_exceeded" if status == 429 else "provider_error",
            provider=provider.name,
            retry_after_s=retry_after_s,
            again=True,
        )
    if status in _MISCONFIGURED or status < 400 or status >= 500:
        # Not the client's key nor its path: 401 or 404 would send it looking in the wrong place.
        return ProviderError(502, told, code="provider_refused", provider=provider.name)
    return ProviderError(
        status, told, code=code or "invalid_request", provider=provider.name, elsewhere=False
    )


async def _read_at_most(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body, or its first bytes, just over the limit."""
    if response.content_length is not None and response.content_length <= limit:
        return await response.read()
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limit:
            break
    return bytes(body)


def _seconds(value: str | None) -> float | None:
    """`Retry-After` in seconds; dates, which no such API sends, are not read."""
    try:
        seconds = float(value) if value else math.nan
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.strerror or str(error.os_error)
    return str(error) or type(error).__name__
