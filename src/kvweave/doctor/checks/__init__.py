"""One file for each kind of trouble: `check(subject)` yields what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvweave.doctor.checks import (
    accounts,
    cache_folder,
    claude_code,
    dead_proxy,
    hit_rate,
    key_elsewhere,
    key_refused,
    key_text,
    loopback_proxy,
    memory,
    missing_choices,
    model_name,
    no_endpoint,
    order,
    port_in_use,
    server_error,
    tls,
    unreachable,
    versions,
    wrong_path,
)
from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject

Check = Callable[[Subject], Iterator[Finding]]

HERE: dict[str, Check] = {
    "versions": versions.check,
    "proxies": dead_proxy.check,
    "keys in the environment": key_elsewhere.check,
    "Claude Code": claude_code.check,
    "accounts": accounts.check,
    "cache folder": cache_folder.check,
    "memory": memory.check,
    "port": port_in_use.check,
}
"""What is looked at on this machine."""

CONNECTION: dict[str, Check] = {
    "proxy to this machine": loopback_proxy.check,
    "key": key_text.check,
    "connection": unreachable.check,
    "TLS": tls.check,
    "path": wrong_path.check,
    "access": key_refused.check,
    "model": model_name.check,
    "format": no_endpoint.check,
    "answer": missing_choices.check,
    "request": server_error.check,
}
"""What is asked of a server with a client's settings."""

REUSE: dict[str, Check] = {"hit rate": hit_rate.check, "order": order.check}
"""What is asked of a server that answers."""
