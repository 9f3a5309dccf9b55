"""Trouble with TLS."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

from kvweave.doctor.finding import Finding
from kvweave.doctor.probe import host_of
from kvweave.doctor.subject import Subject

# By OpenSSL's number of the error: see `openssl verify`.
_CERTIFICATE = {
    10: ("has expired", "renew the certificate, or set this machine's clock right"),
    9: ("is not valid yet", "set this machine's clock right"),
    18: (
        "is signed by itself",
        "name its authority's file in the variable SSL_CERT_FILE, or use a public certificate",
    ),
    19: (
        "comes from an authority that this machine does not know",
        "name the authority's file in the variable SSL_CERT_FILE (a company's proxy may put its "
        "own certificate in place of the server's)",
    ),
    20: (
        "comes from an authority that this machine does not know",
        "name the authority's file in the variable SSL_CERT_FILE; the server may also forget to "
        "send the certificates in between",
    ),
    62: ("is for another host name", "use the name that the certificate is for"),
    64: ("is for another address", "use the name that the certificate is for"),
}


def check(subject: Subject) -> Iterator[Finding]:
    """Tell what is wrong with the certificate, or that there is no TLS."""
    if subject.settings is None:
        return
    error = subject.models.tls_error()
    if error is None:
        return
    host = host_of(subject.models.url)
    if isinstance(error, ssl.SSLCertVerificationError):
        what, mend = _CERTIFICATE.get(
            error.verify_code, (f"is refused ({error.verify_message})", "mend the certificate")
        )
        yield Finding("tls_certificate", f"the certificate of {host} {what}", mend)
    elif "WRONG_VERSION_NUMBER" in str(error) or "HTTP_REQUEST" in str(error):
        yield Finding(
            "tls_not_spoken",
            f"{host} does not speak TLS, though the base URL begins with https://",
            "write http:// in the base URL, or put a server with TLS in front",
        )
    else:
        yield Finding(
            "tls_failed",
            f"no TLS connection to {host} comes about ({error.reason or error})",
            "check the TLS versions and certificates of the server",
        )
