"""Errors in OpenAI's format: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import asyncio
import difflib
import math
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from kvweave.accounts import AccountsError, KeyRefused, LimitExceeded
from kvweave.engine import EngineOverloaded, EngineStopped, PromptTooLong, UnknownSelector
from kvweave.prompt import PromptError


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

    def body(self) -> dict[str, Any]:
        """The JSON body."""
        return {
            "error": {
                "message": self.message,
                "type": _TYPES.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        """The HTTP response."""
        return JSONResponse(self.body(), self.status, self.headers)


# What is not listed is the client's to mend: "invalid_request_error".
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
}

# Official clients try again after a 429 unless this header tells them not to.
_NO_RETRY = {"x-should-retry": "false"}
_WORTH_WAITING_S = 65  # a minute's limit is free again by then


class ClientDisconnected(Exception):
    """The client hung up before its answer was complete."""


def from_exception(error: BaseException) -> ApiError | None:
    """What to tell the client about an error; None if it is unexpected."""
    match error:
        case ApiError():
            return error
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
        f"This key may not use the model {_shown(name)}; `GET /v1/models` lists what it may use.",
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


def invalid_body(error: ValidationError) -> ApiError:
    """The first thing that is wrong with a request body, with the field's name."""
    first = error.errors(include_url=False, include_context=False)[0]
    param = field_path(first["loc"])
    problem = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        problem = "is missing"
    elif first["type"] == "extra_forbidden":
        problem = "is not a known key"
    elif first["type"] != "value_error":
        problem = f"{problem[0].lower()}{problem[1:]}, got {_shown(first['input'])}"
    return ApiError(400, f"{param or 'body'}: {problem}", param=param or None, code="invalid_value")


def model_not_found(name: str, known: Iterable[str]) -> ApiError:
    """404 for a model this server does not serve, naming the nearest that it does."""
    known = list(known)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0) or known
    return ApiError(
        404,
        f"The model {_shown(name)} does not exist here. Did you mean {nearest[0]!r}?",
        param="model",
        code="model_not_found",
    )


def field_path(location: Iterable[int | str]) -> str:
    """A pydantic location as clients write it: `messages[2].content`."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path


def _sentence(error: Exception) -> str:
    message = str(error)
    return f"{message[:1].upper()}{message[1:]}."


def _shown(value: object, limit: int = 60) -> str:
    shown = repr(value)
    return shown if len(shown) <= limit else shown[:limit] + "..."
