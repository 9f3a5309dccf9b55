"""Requests to this machine that are sent through a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject

_LOCAL = ("localhost", "127.", "::1")


def check(subject: Subject) -> Iterator[Finding]:
    """See whether the environment sends a local base URL through a proxy."""
    if subject.settings is None:
        return
    parts = urlsplit(subject.settings.base_url)
    host = parts.hostname or ""
    if not host.startswith(_LOCAL):
        return
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(host):
        yield Finding(
            "loopback_through_proxy",
            f"requests to {host} go through the proxy that the environment names, which cannot "
            "reach this machine's own servers",
            f"leave it out: export NO_PROXY={host},localhost,127.0.0.1,::1",
        )
