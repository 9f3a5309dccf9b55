"""Requests to this machine that are sent through a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from kvweave.doctor.finding import Finding
from kvweave.doctor.probe import proxy_of
from kvweave.doctor.subject import Subject

_LOCAL = ("localhost", "127.", "::1")


def check(subject: Subject) -> Iterator[Finding]:
    """See whether the environment sends a local base URL through a proxy."""
    if subject.settings is None:
        return
    host = urlsplit(subject.settings.base_url).hostname or ""
    if not host.startswith(_LOCAL):
        return
    if proxy := proxy_of(subject.settings.base_url):
        local = ",".join(dict.fromkeys([host, "localhost", "127.0.0.1", "::1"]))
        yield Finding(
            "loopback_through_proxy",
            f"requests to {host} go through a proxy ({proxy}), which cannot reach this machine's "
            "own servers",
            f"leave it out: export NO_PROXY={local}",
        )
