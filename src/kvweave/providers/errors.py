"""What can go wrong with a provider."""

from __future__ import annotations

from kvweave.errors import KvweaveError


class ProviderSetupError(KvweaveError):
    """A provider's settings cannot be used. The message says which and what to do."""


class ProviderError(Exception):
    """A provider did not answer a request, or answered with an error.

    Attributes:
        status: HTTP status for the client.
        message: for the client, without keys.
        code: machine-readable reason.
        provider: its name.
        retry_after_s: seconds after which trying again makes sense; None if unknown.
        elsewhere: whether another provider, or another attempt, could do better. A request that is
            itself wrong is wrong everywhere.
        again: whether the same provider could do better a moment later.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        provider: str,
        retry_after_s: float | None = None,
        elsewhere: bool = True,
        again: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.provider = provider
        self.retry_after_s = retry_after_s
        self.elsewhere = elsewhere
        self.again = again
