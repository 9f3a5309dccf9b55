"""A client's request as one provider gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pydantic_core

from kvweave.formats import BACKEND_FORMATS, BackendFormat, ClientFormat
from kvweave.providers.errors import ProviderError
from kvweave.providers.provider import PATHS, Provider


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as a client sent it.

    Attributes:
        format: what the client speaks.
        body: the parsed body.
        raw: the same, as it came.
        headers: the client's, with names in lower case.
    """

    format: ClientFormat
    body: dict[str, Any]
    raw: bytes
    headers: Mapping[str, str]

    @property
    def model(self) -> str:
        """The model asked for."""
        return str(self.body["model"])

    @property
    def stream(self) -> bool:
        """Whether the answer is to be streamed."""
        return self.body.get("stream") is True


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The same request as it is sent.

    Attributes:
        path: below the provider's base URL.
        payload: the body.
        backend: the format that the answer has to be converted from; None if it is the client's.
        drop_usage: whether the stream's usage was asked for here, and is not the client's.
    """

    path: str
    payload: bytes
    backend: BackendFormat | None
    drop_usage: bool = False


def outgoing(incoming: Incoming, provider: Provider) -> Outgoing:
    """What to send to `provider`. What it understands is passed on as it came, byte by byte.

    Raises:
        FormatError: the request cannot be said in any format of the provider's.
        ProviderError: the provider answers no such requests.
    """
    name = provider.models[incoming.model]
    if incoming.format.name in provider.endpoints:
        changes: dict[str, Any] = {} if name == incoming.model else {"model": name}
        drop_usage = False
        if incoming.stream and incoming.format.name in ("chat", "completions"):
            options = incoming.body.get("stream_options") or {}
            if isinstance(options, dict) and not options.get("include_usage"):
                # Without it nobody would know what the request used.
                changes["stream_options"] = options | {"include_usage": True}
                drop_usage = True
        payload = pydantic_core.to_json(incoming.body | changes) if changes else incoming.raw
        return Outgoing(PATHS[incoming.format.name], payload, None, drop_usage)
    for backend in BACKEND_FORMATS:
        if backend.name in provider.endpoints:
            request = incoming.format.read_request(incoming.body)
            body = backend.write_request(request.model_copy(update={"model": name}))
            if provider.is_openai_itself and "max_tokens" in body:
                body["max_completion_tokens"] = body.pop("max_tokens")
            return Outgoing(PATHS[backend.name], pydantic_core.to_json(body), backend)
    raise ProviderError(
        400,
        f"The provider {provider.name} does not answer such requests.",
        code="unsupported_endpoint",
        provider=provider.name,
    )
