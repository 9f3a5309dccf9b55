"""One address in the form that each kind of client wants."""

from __future__ import annotations

from urllib.parse import urlsplit

from kvweave.connect.plan import ConnectError
from kvweave.doctor import Style

_ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/models")


def base_url_for(style: Style, address: str) -> str:
    """`address` with `/v1` for OpenAI's clients, without for Anthropic's, which add it themselves.

    Raises:
        ConnectError: it is no address of a server.
    """
    url = address.strip()
    if "://" not in url:
        url = f"http://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or any(map(str.isspace, url)):
        raise ConnectError(
            f"{address!r} is no address of a server: write it as in http://127.0.0.1:8080/v1"
        )
    path = parts.path.rstrip("/")
    for endpoint in _ENDPOINTS:
        path = path.removesuffix(endpoint)
    path = path.removesuffix("/v1") if style == "anthropic" else path or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"
