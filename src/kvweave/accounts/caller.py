"""Who sends a request, as the rest of the server gets to know it."""

from __future__ import annotations

from dataclasses import dataclass

ANONYMOUS_PROJECT = "anonymous"
"""Project of requests to a server that has no keys."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The project behind a request. Comes from the key, never from the request's body.

    Attributes:
        project: name of the project.
        tenant: salt of everything that is cached for it. Two projects never have the same.
        key_id: public part of the key, fit for logs; None if the request came without a key.
        models: names of the models it may use; None means all.
    """

    project: str
    tenant: str
    key_id: str | None
    models: frozenset[str] | None = None

    @classmethod
    def anonymous(cls) -> Caller:
        """Whoever asks a server that has no keys."""
        return cls(ANONYMOUS_PROJECT, tenant="", key_id=None)

    def may_use(self, model: str) -> bool:
        """Whether its key is for `model`."""
        return self.models is None or model in self.models
