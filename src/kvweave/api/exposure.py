"""Nobody but this machine is served without keys."""

from __future__ import annotations

import ipaddress
import socket

from kvweave.api.server import ServerStartError


def check_exposure(host: str, *, has_keys: bool) -> None:
    """Refuse to listen on `host` if others could reach it and no key was ever made.

    Raises:
        ServerStartError: it is not an address of loopback. The message says what to do.
    """
    if has_keys or is_loopback(host):
        return
    raise ServerStartError(
        f"no key was made yet, so only this machine may be served, and {host} is reached from "
        "others: make a key first with `kvweave keys create --project NAME`, or listen on 127.0.0.1"
    )


def is_loopback(host: str) -> bool:
    """Whether all addresses of `host` are this machine's own. A name nobody knows has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return True  # listening on it fails with a message of its own
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)
