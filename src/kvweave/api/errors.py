"""Errors, in the format of the API that was called."""

from __future__ import annotations

import asyncio
import difflib
import math
from collections.abc import Iterable
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Scope

from kvweave.accounts import AccountsError, KeyRefused, LimitExceeded
from kvweave.api.paths import canonical_path
from kvweave.engine import EngineOverloaded, EngineStopped, PromptTooLong, UnknownSelector
from kvweave.formats import ErrorStyle, FormatError, error_body, shown
from kvweave.prompt import PromptError
from kvweave.providers import ProviderError


class ApiError(Exception):
    """An error with all that a client gets to see of it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or {}

    def body(self, style: ErrorStyle = "openai", request_id: str | None = None) -> dict[str, Any]:
        """The JSON body."""
        message = self.message
        if style == "anthropic" and self.code == "context_length_exceeded":
            # Clients of Anthropic's look for these words, and shorten the conversation.
            message = f"prompt is too long: {message}"
        return error_body(
            style,
            self.status,
            message,
            code=self.code,
            param=self.param,
            request_id=request_id,
        )

    def response(self, style: ErrorStyle = "openai", request_id: str | None = None) -> JSONResponse:
        """The HTTP response."""
        return JSONResponse(self.body(style, request_id), self.status, self.headers)


# Official clients try again after a 429 unless this header tells them not to.
_NO_RETRY = {"x-should-retry": "false"}
_WORTH_WAITING_S = 65  # a minute's limit is free again by then


class ClientDisconnected(Exception):
    """The client hung up before its answer was complete."""


def error_style(scope: Scope) -> ErrorStyle:
    """Whose errors the client of a request understands."""
    if canonical_path(scope["path"]).startswith("/messages"):
        return "anthropic"
    names = {name for name, _ in scope["headers"]}
    return "anthropic" if b"anthropic-version" in names else "openai"


def from_exception(error: BaseException) -> ApiError | None:
    """What to tell the client about an error; None if it is unexpected."""
    match error:
        case ApiError():
            return error
        case FormatError():
            return ApiError(400, str(error), param=error.path or None, code=error.code)
        case ProviderError():
            seconds = error.retry_after_s
            if seconds is None and error.status == 429:
                seconds = 1.0
            return ApiError(
                error.status,
                error.message,
                code=error.code,
                headers={} if seconds is None else {"retry-after": str(max(1, math.ceil(seconds)))},
            )
        case PromptError():
            return ApiError(400, str(error), param=error.path, code="invalid_value")
        case PromptTooLong():
            return ApiError(400, _sentence(error), param="messages", code="context_length_exceeded")
        case UnknownSelector():
            return ApiError(400, _sentence(error), param="kvweave.selector", code="invalid_value")
        case EngineOverloaded():
            retry_after = str(max(1, math.ceil(error.retry_after_s)))
            return ApiError(
                429,
                _sentence(error),
                code="engine_overloaded",
                headers={"retry-after": retry_after},
            )
        case KeyRefused():
            headers = {"www-authenticate": "Bearer"}
            return ApiError(401, str(error), code=error.code, headers=headers)
        case LimitExceeded():
            return _limit_exceeded(error)
        case AccountsError():
            return ApiError(
                503,
                "The server cannot look up keys and limits at this moment; its log tells why.",
                code="accounts_unavailable",
            )
        case EngineStopped():
            return ApiError(503, _sentence(error), code="engine_stopped")
        case asyncio.CancelledError():  # what the server does to requests when it stops
            return ApiError(503, "The server is stopping.", code="server_stopping")
        case _:
            return None


def _limit_exceeded(error: LimitExceeded) -> ApiError:
    headers = {}
    wait = math.inf if error.retry_after_s is None else error.retry_after_s
    if wait < math.inf:
        headers["retry-after"] = str(max(1, math.ceil(wait)))
    if wait > _WORTH_WAITING_S:
        headers |= _NO_RETRY
    used_up = error.limit == "budget" and wait > _WORTH_WAITING_S
    code = "insufficient_quota" if used_up else "rate_limit_exceeded"
    return ApiError(429, str(error), code=code, headers=headers)


def model_not_allowed(name: str) -> ApiError:
    """403 for a model that the caller's key is not for."""
    return ApiError(
        403,
        f"This key may not use the model {shown(name)}; `GET /v1/models` lists what it may use.",
        param="model",
        code="model_not_allowed",
    )


def internal_error(request_id: str) -> ApiError:
    """What to tell the client about an error that is not its own."""
    return ApiError(
        500,
        f"The server failed on this request. Its log tells more under request id {request_id}.",
        code="internal_error",
    )


def model_not_found(name: str, known: Iterable[str]) -> ApiError:
    """404 for a model this server does not serve, naming the nearest that it does."""
    known = list(known)
    nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[:3]
    hint = f"Did you mean {' or '.join(map(repr, nearest))}?" if nearest else "There is none."
    return ApiError(
        404,
        f"The model {shown(name)} does not exist here. {hint}",
        param="model",
        code="model_not_found",
    )


def _sentence(error: Exception) -> str:
    message = str(error)
    return f"{message[:1].upper()}{message[1:]}."
