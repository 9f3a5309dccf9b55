"""Running the app."""

from __future__ import annotations

import errno
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import uvicorn
from fastapi import FastAPI

from kvweave.api.protocol import PatientHttpProtocol, protocol_with
from kvweave.errors import KvweaveError

log = logging.getLogger(__name__)

# Longer than clients keep idle connections, so that it is never the server that closes one just as
# the client sends its next request.
_KEEP_ALIVE_S = 75

# Streams that still run when the server is told to stop get this long to finish.
_SHUTDOWN_GRACE_S = 5


class ServerStartError(KvweaveError):
    """The server cannot listen where it was told to."""


def run_server(
    app: FastAPI,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    client_timeout_s: float = PatientHttpProtocol.timeout_s,
) -> None:
    """Serve `app` until interrupted (Ctrl-C or SIGTERM). Blocks. Port 0 picks a free one.

    Connections of clients that are slower than `client_timeout_s` allows are closed; see
    `PatientHttpProtocol`.

    Raises:
        ServerStartError: the address cannot be listened on; the message says what to do.
    """
    config = uvicorn.Config(
        app,
        http=protocol_with(client_timeout_s),
        log_config=None,
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_SHUTDOWN_GRACE_S,
    )
    with _listen(host, port) as listener:
        shown_host = f"[{host}]" if ":" in host else host
        log.info("listening on http://%s:%d/v1", shown_host, listener.getsockname()[1])
        with _sigterm_as_interrupt(), suppress(KeyboardInterrupt):
            # Having shut down in order, uvicorn raises the signal that told it to once more.
            uvicorn.Server(config).run(sockets=[listener])
        log.info("stopped")


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM unwind the stack like Ctrl-C, so that the caller gets to stop its engine."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except socket.gaierror as error:
        raise ServerStartError(f"the host {host!r} cannot be resolved: {error.strerror}") from None
    except OSError as error:
        raise ServerStartError(_why_not(error, host, port)) from None


def _why_not(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is already in use; stop the program that uses it "
            f"or choose another port, such as {port + 1 if port < 65535 else 8000}"
        )
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs privileges; choose a port from 1024 up"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all"
    return f"cannot listen on {host} port {port}: {error.strerror}"
