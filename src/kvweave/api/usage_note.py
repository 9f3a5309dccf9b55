"""What becomes of one request, noted for the usage log."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType

from kvweave.accounts import Caller, UsageRecord, UsageSink
from kvweave.api.errors import ClientDisconnected, from_exception
from kvweave.engine import Delta

_HUNG_UP = (499, "client_disconnected")  # the status that proxies log for it


class UsageNote:
    """Follows a request to its end, and records it once.

    As a context manager it records an error that leaves the block; one that is answered is recorded
    when its deltas have ended (`follow`), or by `done`.

    Args:
        caller: whose request it is.
        format: the API that was called.
        provider: name of the backend.
    """

    def __init__(self, sink: UsageSink, caller: Caller, format: str, provider: str) -> None:
        self._sink = sink
        self._caller = caller
        self._format = format
        self._provider = provider
        self._time = time.time()
        self._started = time.perf_counter()
        self._written = False
        self._ttft: float | None = None
        self._cached_tokens = 0
        self._completion_tokens = 0
        self.model = ""
        self.prompt_tokens = 0

    def __enter__(self) -> UsageNote:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.failed(error)

    async def follow(self, deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[Delta, None]:
        """The same deltas; the request is recorded when they end, fail or are not wanted any more.

        Closing it closes `deltas`.
        """
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    if self._ttft is None and delta.token_count:
                        self._ttft = time.perf_counter() - self._started
                    self._completion_tokens = delta.token_count
                    if delta.report is not None:
                        self._cached_tokens = delta.report.cached_tokens
                    if delta.finish_reason is not None:
                        self._write(200, None)
                    yield delta
        except BaseException as error:
            self.failed(error)
            raise

    def done(self) -> None:
        """The request has been answered, without any deltas."""
        self._write(200, None)

    def failed(self, error: BaseException) -> None:
        """The request has ended with `error`."""
        if isinstance(error, (ClientDisconnected, GeneratorExit)):
            self._write(*_HUNG_UP)
            return
        told = from_exception(error)
        self._write(*((told.status, told.code) if told else (500, "internal_error")))

    def _write(self, status: int, error_code: str | None) -> None:
        if self._written:
            return
        self._written = True
        self._sink.record(
            UsageRecord(
                time=self._time,
                project=self._caller.project,
                key_id=self._caller.key_id,
                model=self.model,
                provider=self._provider,
                format=self._format,
                status=status,
                error_code=error_code,
                prompt_tokens=self.prompt_tokens,
                cached_tokens=self._cached_tokens,
                completion_tokens=self._completion_tokens,
                ttft_s=self._ttft,
                duration_s=time.perf_counter() - self._started,
            )
        )
