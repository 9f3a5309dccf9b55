"""Which providers serve a model, in which order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvweave.config import ProviderConfig
from kvweave.providers.provider import Provider


class Router:
    """The configured providers, in their order.

    A model that several of them serve is asked for in that order; those that keep failing come
    last until they have recovered.
    """

    def __init__(self, providers: Sequence[Provider]) -> None:
        self.providers = tuple(providers)

    @classmethod
    def from_config(cls, configs: Iterable[ProviderConfig]) -> Router:
        """The providers of the `[[providers]]` tables.

        Raises:
            ProviderSetupError: one of them cannot be used.
        """
        return cls([Provider.from_config(config) for config in configs])

    @property
    def models(self) -> list[str]:
        """All names that clients may ask for, in order."""
        return list(dict.fromkeys(name for p in self.providers for name in p.models))

    def serving(self, model: str) -> list[Provider]:
        """The providers to ask for `model`, the best first."""
        serving = [provider for provider in self.providers if model in provider.models]
        return sorted(serving, key=lambda provider: not provider.health.ok)
