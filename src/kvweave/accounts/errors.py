"""What goes wrong with keys, limits and their database."""

from __future__ import annotations

from kvweave.errors import KvweaveError


class AccountsError(KvweaveError):
    """The database of keys and usage cannot be used. The message says what to do."""


class KeyRefused(KvweaveError):
    """A request's key is missing or not accepted. The message never holds the key.

    Attributes:
        code: "missing_api_key", "invalid_api_key" or "revoked_api_key".
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class LimitExceeded(KvweaveError):
    """A key has used up what it may.

    Attributes:
        limit: which one: "rpm", "tpm" or "budget".
        retry_after_s: seconds until it is worth trying again; None if it never is.
    """

    def __init__(self, message: str, limit: str, retry_after_s: float | None) -> None:
        super().__init__(message)
        self.limit = limit
        self.retry_after_s = retry_after_s
