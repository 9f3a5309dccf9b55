"""Asking a running server for what its own endpoints tell."""

from __future__ import annotations

import os
from typing import Any

from kvweave.errors import KvweaveError


class NoAnswer(KvweaveError):
    """The server did not answer, or not with what it was asked for."""


def ask(base_url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON that the server answers `GET path` with, or `POST path` if there is a body.

    A key is read from the environment variable KVWEAVE_API_KEY.

    Raises:
        NoAnswer: says what to do.
    """
    import httpx

    from kvweave.connect.address import base_url_for

    url = base_url_for("openai", base_url) + path
    key = os.environ.get("KVWEAVE_API_KEY", "").strip()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    method = "GET" if body is None else "POST"
    try:
        response = httpx.request(method, url, json=body, headers=headers, timeout=120)
    except httpx.HTTPError as error:
        raise NoAnswer(
            f"no answer from {url} ({error}); start the server with `kvweave serve`, "
            "or give its address with --base-url"
        ) from None
    if response.status_code != 200:
        raise NoAnswer(f"{url} answers with HTTP {response.status_code}: {_message(response)}")
    answer: dict[str, Any] = response.json()
    return answer


def _message(response: Any) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return str(response.text[:200])
