"""A proxy in the environment at which nobody listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080}
_TIMEOUT_S = 3.0


def check(subject: Subject) -> Iterator[Finding]:
    """Connect to each proxy that a variable names."""
    for name in VARIABLES:
        for variable in (name, name.lower()):
            value = subject.environ.get(variable, "").strip()
            if value and (why := _unreachable(value)):
                yield Finding(
                    "dead_proxy",
                    f"the variable {variable} sends requests through a proxy at "
                    f"{_shown(value)}, which cannot be reached ({why})",
                    f"start that proxy, or remove the variable: unset {variable}",
                )


def _unreachable(proxy: str) -> str | None:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    try:
        port = parts.port or _PORTS.get(parts.scheme, 80)
        socket.create_connection((parts.hostname or "", port), _TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    return None


def _shown(proxy: str) -> str:
    """Without the user name and password that may stand in it."""
    return proxy.rpartition("@")[2] if "@" in proxy else proxy
