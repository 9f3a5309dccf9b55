"""One small request, sent exactly as a client with these settings would send it."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

TIMEOUT_S = 60.0
"""For the whole of a request: a model on a slow machine takes a while for its first token."""

Style = Literal["openai", "responses", "anthropic"]
"""The format that a client speaks: OpenAI's chat completions or responses, or Anthropic's."""

_ENDPOINTS = {
    "openai": "/chat/completions",
    "responses": "/responses",
    "anthropic": "/v1/messages",
}


_LEAST_OUTPUT = 16  # that OpenAI's Responses API takes


@dataclass(frozen=True, slots=True)
class Settings:
    """What a client is told.

    Attributes:
        base_url: as the client gets it: for OpenAI's clients it ends in `/v1`, for Anthropic's not.
        key: may hold anything; an empty one is not sent.
        model: name of the model.
        style: the format that the client speaks.
    """

    base_url: str
    key: str
    model: str
    style: Style = "openai"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request: an answer, or the error that there was instead.

    Attributes:
        url: where it went.
        status: HTTP status; 0 if there was no answer.
        body: the JSON body; None if there is none.
        text: the body as text.
        error: why there was no answer.
    """

    url: str
    status: int = 0
    body: Any = None
    text: str = ""
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """Whether there was an answer that is no error."""
        return 200 <= self.status < 300

    @property
    def told(self) -> str:
        """The message of the error in the body, or the beginning of the body."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            return str(error["message"])
        return str(error if isinstance(error, str) else self.text).strip()[:200]

    @property
    def code(self) -> str:
        """The code of the error in the body; empty if it has none."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        return str(error.get("code") or "") if isinstance(error, dict) else ""

    def causes(self) -> Iterator[BaseException]:
        """The error, and what it came from."""
        error: BaseException | None = self.error
        while error is not None:
            yield error
            error = error.__cause__ or error.__context__

    def tls_error(self) -> ssl.SSLError | None:
        """The trouble with TLS, if that was it."""
        return next((e for e in self.causes() if isinstance(e, ssl.SSLError)), None)


class Probe:
    """Sends requests with the proxies and certificates that the environment names."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def chat(self) -> Outcome:
        """Ask for one token."""
        return self._chat("Say hi.")

    def ask(self, passages: Sequence[str]) -> Outcome:
        """Ask for one token about these passages."""
        parts = [*passages, "Which record stands first?"]
        return self._chat([{"type": "text", "text": part} for part in parts])

    def _chat(self, content: object) -> Outcome:
        body: dict[str, Any] = {"model": self.settings.model}
        if self.settings.style == "responses":
            body |= {"input": content, "max_output_tokens": _LEAST_OUTPUT}
        else:
            body |= {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
        return self._send("POST", self._url(_ENDPOINTS[self.settings.style]), body)

    def models(self) -> Outcome:
        """List the models."""
        path = "/v1/models" if self.settings.style == "anthropic" else "/models"
        return self._send("GET", self._url(path))

    def get(self, url: str) -> Outcome:
        """Ask for another page of the same server, with the same key."""
        return self._send("GET", url)

    def _url(self, path: str) -> str:
        return self.settings.base_url.rstrip("/") + path

    def _send(self, method: str, url: str, body: object = None) -> Outcome:
        headers = {"anthropic-version": "2023-06-01"} if self.settings.style == "anthropic" else {}
        if self.settings.key:
            headers["authorization"] = f"Bearer {self.settings.key}"
        try:
            with httpx.Client(timeout=TIMEOUT_S) as http:
                answer = http.request(method, url, headers=headers, json=body)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
            return Outcome(url, error=error)
        try:
            parsed = json.loads(answer.content)
        except ValueError:
            parsed = None
        return Outcome(url, answer.status_code, parsed, answer.text)


def proxy_of(url: str) -> str | None:
    """The proxy through which the environment sends requests to `url`, without its password."""
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None
    return proxy.rpartition("@")[2]


def host_of(url: str) -> str:
    """Host and port of a URL, as they stand there."""
    return urlsplit(url).netloc.rpartition("@")[2] or url
