"""One provider: where it answers, in which formats, under which names."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit, urlunsplit

from pydantic import SecretStr

from kvweave.config import ProviderConfig
from kvweave.engine import Admission
from kvweave.formats import FormatName
from kvweave.providers.errors import ProviderSetupError
from kvweave.providers.health import Health
from kvweave.providers.secret import read_key

Endpoint = FormatName
PATHS: Mapping[str, str] = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "responses": "/responses",
    "messages": "/messages",
    "count_tokens": "/messages/count_tokens",
    "embeddings": "/embeddings",
}

_ENDPOINTS: Mapping[str, tuple[str, ...]] = {
    "kvweave": tuple(PATHS),
    "openai": ("chat", "completions", "embeddings"),
    "ollama": ("chat", "completions", "embeddings"),
    "anthropic": ("messages", "count_tokens"),
}
_DEFAULT_URLS = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "ollama": "http://127.0.0.1:11434/v1",
}


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider ready to be asked.

    Attributes:
        name: what logs and errors call it.
        base_url: up to and including `/v1`, without a slash at the end.
        endpoints: what it answers; see `PATHS`.
        models: the names that clients use, each with the provider's own.
        key: sent with every request; None for none.
        proxy: URL of the proxy to go through; None for none.
    """

    name: str
    kind: str
    base_url: str
    endpoints: frozenset[str]
    models: Mapping[str, str]
    key: SecretStr | None
    proxy: str | None
    timeout_s: float
    max_retries: int
    admission: Admission
    health: Health = field(default_factory=Health)

    @classmethod
    def from_config(cls, config: ProviderConfig) -> Provider:
        """The provider that a `[[providers]]` table describes.

        Raises:
            ProviderSetupError: it cannot be used like this.
        """
        base_url = _base_url(config)
        endpoints = set(_ENDPOINTS[config.kind])
        if config.kind == "openai" and config.responses != "converted":
            endpoints.add("responses")
        if config.responses == "only":
            endpoints -= {"chat", "completions"}
        return cls(
            name=config.name,
            kind=config.kind,
            base_url=base_url,
            endpoints=frozenset(endpoints),
            models=config.model_names,
            key=read_key(config),
            proxy=_proxy_for(base_url),
            timeout_s=config.timeout_sec,
            max_retries=config.max_retries,
            admission=Admission(config.max_concurrent_requests, config.max_waiting_requests),
        )

    @property
    def is_openai_itself(self) -> bool:
        """Whether it is OpenAI: some of its models refuse `max_tokens`, which all others know."""
        return urlsplit(self.base_url).hostname == "api.openai.com"

    def headers(self, client: Mapping[str, str]) -> dict[str, str]:
        """What to send. Of the client's own headers only those that change the answer."""
        headers = {
            "content-type": "application/json",
            "accept-encoding": "identity",
            "user-agent": "kvweave",
        }
        if self.kind == "anthropic":
            headers["anthropic-version"] = "2023-06-01"
            if self.key is not None:
                headers["x-api-key"] = self.key.get_secret_value()
        elif self.key is not None:
            headers["authorization"] = f"Bearer {self.key.get_secret_value()}"
        if self.kind in ("anthropic", "kvweave"):
            for name in ("anthropic-version", "anthropic-beta"):
                value = client.get(name, "")
                if value and value.isascii() and value.isprintable():
                    headers[name] = value
        return headers


def _base_url(config: ProviderConfig) -> str:
    """The configured address, whether it ends at the host, at `/v1` or at an endpoint."""
    given = config.base_url or _DEFAULT_URLS.get(config.kind)
    where = f"providers.{config.name}.base_url"
    if given is None:
        raise ProviderSetupError(f"{where} is missing; give the address that ends in /v1")
    try:
        parts = urlsplit(given)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ProviderSetupError(f"{where} = {given!r}: must be an http:// or https:// address")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ProviderSetupError(
            f"{where}: must not hold a user, a query or a fragment; keys belong in api_key_env"
        )
    path = parts.path.rstrip("/")
    for endpoint in sorted(PATHS.values(), key=len, reverse=True):
        path = path.removesuffix(endpoint)
    path = path.rstrip("/") or "/v1"
    return urlunsplit(SplitResult(parts.scheme, parts.netloc, path, "", ""))


def _proxy_for(url: str) -> str | None:
    """The proxy the environment names for `url`. Loopback never goes through one."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1":
        return None
    if urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")
