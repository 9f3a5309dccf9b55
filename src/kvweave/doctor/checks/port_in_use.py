"""The port that the server would listen on belongs to another program."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx

from kvweave.doctor.finding import Finding
from kvweave.doctor.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Try to listen; if that fails, see whether it is a kvweave server that does."""
    host, port = subject.config.server.host, subject.config.server.port
    if port == 0:
        return
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        socket.create_server((host, port), family=family).close()
        return
    except OSError as error:
        reason = error.strerror or str(error)
    if _is_kvweave(port):
        return
    yield Finding(
        "port_in_use",
        f"server.port = {port} on {host} cannot be listened on ({reason})",
        f"end the program that uses it (`ss -ltnp 'sport = :{port}'` shows it), or choose another "
        "server.port",
    )


def _is_kvweave(port: int) -> bool:
    try:
        with httpx.Client(trust_env=False, timeout=5.0) as http:
            return "pending_chunks" in http.get(f"http://127.0.0.1:{port}/health").json()
    except (httpx.HTTPError, ValueError, TypeError):
        return False
