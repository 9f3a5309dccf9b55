"""No answer at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx

from kvweave.doctor.finding import Finding
from kvweave.doctor.probe import host_of, proxy_of
from kvweave.doctor.subject import Subject


def check(subject: Subject) -> Iterator[Finding]:
    """Tell why there is no answer, unless TLS is why."""
    if subject.settings is None:
        return
    outcome = subject.models
    if outcome.error is None or outcome.tls_error() is not None:
        return
    if (proxy := proxy_of(outcome.url)) and isinstance(outcome.error, httpx.TransportError):
        message = f"requests to it go through a proxy at {proxy}, and fail there ({outcome.error})"
        mend = "mend the proxy, or see the variables HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
    else:
        message, mend = _explain(outcome.error, list(outcome.causes()))
    yield Finding("no_answer", f"{host_of(outcome.url)} gives no answer: {message}", mend)


def _explain(error: Exception, causes: list[BaseException]) -> tuple[str, str]:
    if isinstance(error, (httpx.UnsupportedProtocol, httpx.InvalidURL)):
        return (
            f"the base URL cannot be used ({error})",
            "write it whole, as in http://127.0.0.1:8080/v1",
        )
    if isinstance(error, (httpx.LocalProtocolError, UnicodeEncodeError)):
        return (
            "the key has characters that cannot be sent",
            "copy the key again, without line ends or anything around it",
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "nobody knows a host of that name", "correct the host in the base URL"
    if isinstance(error, httpx.ConnectTimeout):
        return "the connection is not answered", "check host, port and firewall"
    if isinstance(error, httpx.TimeoutException):
        return "the server takes too long", "see its log; is it busy, or loading a model?"
    if isinstance(error, httpx.ConnectError):
        return (
            "nothing listens there",
            "start the server (kvweave serve), or correct host and port",
        )
    return str(error) or type(error).__name__, "see the server's log"
