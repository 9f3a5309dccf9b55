"""What is wrong with a body, and how each API tells its clients."""

from __future__ import annotations

from typing import Any, Literal

ErrorStyle = Literal["openai", "anthropic"]


class FormatError(ValueError):
    """A body is not what its format allows, or asks for what cannot be converted.

    Attributes:
        message: what is wrong, without the path.
        path: the offending field, such as `messages[2].content[0].type`; empty for the whole body.
        code: machine-readable reason, as OpenAI's errors have it.
    """

    def __init__(self, message: str, path: str = "", *, code: str = "invalid_value") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path
        self.code = code


# What is not listed is the client's to mend.
_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    502: "server_error",
    503: "service_unavailable_error",
    504: "server_error",
}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(
    style: ErrorStyle,
    status: int,
    message: str,
    *,
    code: str | None = None,
    param: str | None = None,
    request_id: str | None = None,
) -> dict[str, Any]:
    """An error as clients of this API parse it.

    OpenAI: `{"error": {"message", "type", "param", "code"}}`.
    Anthropic: `{"type": "error", "error": {"type", "message"}, "request_id"}`.
    """
    if style == "anthropic":
        error = {"type": _ANTHROPIC_TYPES.get(status, "invalid_request_error"), "message": message}
        return {"type": "error", "error": error, "request_id": request_id}
    kind = _OPENAI_TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
