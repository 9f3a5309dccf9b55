"""The benchmark's side of the wire: the official `openai` client, and a stopwatch."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionMessageParam

from kvweave.bench.errors import BenchError
from kvweave.bench.scoring import LogProbs

REQUEST_TIMEOUT_SECONDS = 600.0
IDLE_TIMEOUT_SECONDS = 300.0
IDLE_POLL_SECONDS = 0.02
API_KEY_VARIABLE = "KVWEAVE_API_KEY"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One answer and what it took. Times in seconds, sizes in tokens.

    Attributes:
        ttft: from sending the request to the first piece of text, or to the end if there is none.
        total: from sending the request to the end of the stream.
        reuse: `usage.kvweave` as the server sent it, without the log-probabilities.
        logprobs: log-probabilities of the first answer token, float32 `[vocab]`, if asked for.
    """

    answer: str
    finish_reason: str
    ttft: float
    total: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reuse: Mapping[str, Any] = field(default_factory=dict)
    logprobs: LogProbs | None = None

    def without_logprobs(self) -> Measurement:
        """The same without the log-probabilities, which take some hundred kilobytes."""
        return replace(self, logprobs=None)


class RequestFailed(Exception):
    """A request brought no answer; the message says why."""


class BenchClient:
    """Sends one request at a time to the server at `url`, and measures it.

    Args:
        url: root of the server, with or without `/v1`.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        # A proxy can't reach this machine's own server, and would spoil the times of any other.
        trust_env = not is_loopback(self.url)
        self._http = httpx.Client(base_url=self.url, trust_env=trust_env, timeout=30.0)
        self._openai = openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key=os.environ.get(API_KEY_VARIABLE, "").strip() or "none",
            timeout=REQUEST_TIMEOUT_SECONDS,
            max_retries=0,  # a repeated request would be measured as one slow answer
            http_client=openai.DefaultHttpxClient(trust_env=trust_env),
        )
        self._model: str | None = None

    def __enter__(self) -> BenchClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()
        self._openai.close()

    @property
    def model(self) -> str:
        """Name of the served model.

        Raises:
            BenchError: no server answers there, or it serves nothing.
        """
        if self._model is None:
            try:
                models = self._openai.models.list().data
            except openai.APIError as error:
                raise BenchError(
                    f"{self.url}/v1/models gave no answer: {_reason(error)}; is the server running?"
                ) from None
            if not models:
                raise BenchError(f"{self.url} serves no model")
            self._model = models[0].id
        return self._model

    def wait_until_idle(self) -> None:
        """Wait until no chunk KV is being computed in the background.

        A server whose /health doesn't tell of pending chunks counts as idle.

        Raises:
            BenchError: the work doesn't end.
            RequestFailed: /health doesn't answer.
        """
        deadline = time.monotonic() + IDLE_TIMEOUT_SECONDS
        while pending := self._pending_chunks():
            if time.monotonic() > deadline:
                raise BenchError(
                    f"{self.url} still has {pending} chunks to compute after "
                    f"{IDLE_TIMEOUT_SECONDS:.0f} s; is somebody else using the server?"
                )
            time.sleep(IDLE_POLL_SECONDS)

    def _pending_chunks(self) -> int:
        try:
            response = self._http.get("/health")
            pending = response.json().get("pending_chunks", 0) if response.is_success else 0
        except (httpx.HTTPError, ValueError, AttributeError) as error:
            raise RequestFailed(f"GET /health: {error}") from error
        return int(pending)

    def ask(
        self,
        messages: Iterable[ChatCompletionMessageParam],
        options: Mapping[str, Any],
        max_tokens: int,
    ) -> Measurement:
        """Stream one greedy answer. `options` is what the body's `kvweave` holds.

        Raises:
            RequestFailed: the server refuses, fails, or breaks off.
        """
        messages = list(messages)
        text: list[str] = []
        finish_reason = ""
        usage: CompletionUsage | None = None
        first: float | None = None
        model = self.model
        start = time.perf_counter()
        try:
            stream = self._openai.chat.completions.create(
                model=model,
                messages=messages,
                temperature=0,
                max_tokens=max_tokens,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"kvweave": dict(options)},
            )
            with stream:
                for chunk in stream:
                    now = time.perf_counter()
                    usage = chunk.usage or usage
                    for choice in chunk.choices:
                        piece = choice.delta.content or ""
                        finish_reason = choice.finish_reason or finish_reason
                        if first is None and (piece or finish_reason):
                            first = now
                        text.append(piece)
            end = time.perf_counter()
        except (openai.APIError, httpx.HTTPError) as error:
            raise RequestFailed(_reason(error)) from error
        if first is None or not finish_reason:
            raise RequestFailed("the stream ended without a finish reason")
        return _measurement("".join(text), finish_reason, first - start, end - start, usage)


def _measurement(
    answer: str, finish_reason: str, ttft: float, total: float, usage: CompletionUsage | None
) -> Measurement:
    if usage is None:
        raise RequestFailed("the stream has no usage, though it was asked for")
    details = usage.prompt_tokens_details
    reuse = dict((usage.model_extra or {}).get("kvweave") or {})
    encoded = reuse.pop("first_token_logprobs", None)
    return Measurement(
        answer=answer.strip(),
        finish_reason=finish_reason,
        ttft=ttft,
        total=total,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=(details.cached_tokens or 0) if details else 0,
        reuse=reuse,
        logprobs=None if encoded is None else decode_logprobs(encoded),
    )


def decode_logprobs(encoded: str) -> LogProbs:
    """Base64 of little-endian float32 -> float32 `[vocab]`.

    Raises:
        RequestFailed: it is something else.
    """
    try:
        return np.frombuffer(base64.b64decode(encoded, validate=True), dtype="<f4")
    except (binascii.Error, TypeError, ValueError) as error:
        raise RequestFailed(f"first_token_logprobs can't be decoded: {error}") from error


def is_loopback(url: str) -> bool:
    """Whether `url` points at this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _reason(error: Exception) -> str:
    """The message of the error, and of what caused it where that says more."""
    cause = error.__cause__
    return f"{error} ({cause})" if cause and str(cause) not in str(error) else str(error)
