"""Certificates of TLS: why one was refused, and until when those in files and those of servers are valid."""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

PROBE_S = 6.0
"""Seconds for each answer of a server that is asked for its certificate."""

_RENEW = "renew the server's certificate (or that of its authority in `tls.ca`)"
_NAME = "write the host as the server's certificate names it (`tls.verify: ca` compares no names)"
_AUTHORITY = "give the certificate of the authority that signed the server's certificate as `tls.ca`"
_IDENTIFY = (
    "have the certificate issued again with the extension that is missing, which Python 3.13 and newer "
    "demand, or run rowlock with Python 3.12"
)
#: OpenSSL's verify code → remedy.
_BY_CODE: dict[int, str] = {
    9: "correct the clock of this machine or of the server",
    10: _RENEW,
    **dict.fromkeys((7, 18, 19, 20, 21, 24), _AUTHORITY),
    **dict.fromkeys((62, 64), _NAME),
}
#: A driver's message that has no code → remedy.
_BY_TEXT = (
    ("alert.*certificate|alert unknown ca", "renew `tls.cert`, or let the server trust it"),
    (
        "requires a valid client certificate",
        "give `tls.cert` and `tls.key`",
    ),
    ("root certificate file .* does not exist", "give the certificates of authorities as `tls.ca`"),
    ("does not match host name|name not matched", _NAME),
    ("certificate verify failed", f"if it has expired, {_RENEW}; otherwise {_AUTHORITY}"),
)


def explain_refused_certificate(error: BaseException) -> str | None:
    """Return the remedy if `error`, or what caused it, refuses a certificate; otherwise None."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            if "Key Identifier" in seen.verify_message:
                return _IDENTIFY
            return _BY_CODE.get(seen.verify_code, "see the server's certificate")
        # PyMySQL keeps what caused an error beside it
        seen = getattr(seen, "original_exception", None) or seen.__cause__ or seen.__context__
    text = str(error)
    return next((remedy for words, remedy in _BY_TEXT if re.search(words, text)), None)


def read_expiries(file: Path) -> list[datetime]:
    """Return when each certificate of a PEM file expires, in the file's order. Raises OSError, ValueError."""
    from cryptography import x509

    return [each.not_valid_after_utc for each in x509.load_pem_x509_certificates(file.read_bytes())]


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """The files of a client's own certificate, for servers that ask for one."""

    cert: Path | None = None
    key: Path | None = None
    password: str | None = None


def read_peer_expiry(stream: object) -> datetime | None:
    """Return when the certificate expires that the server has presented on a socket; None: it has no TLS.

    Raises ValueError.
    """
    from cryptography import x509

    raw = stream.getpeercert(binary_form=True) if isinstance(stream, ssl.SSLSocket) else None
    return None if raw is None else x509.load_der_x509_certificate(raw).not_valid_after_utc


def probe_expiry(
    host: str, port: int, own: OwnCertificate, *, question: bytes = b"", consent: bytes = b""
) -> datetime | None:
    """Begin TLS with a server, and return when its certificate expires. Nothing is verified, and nothing else
    is sent.

    For servers whose client shows no certificate. `question`: what is sent before TLS, and `consent` the
    server's answer to it. Raises OSError, ValueError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if own.cert is not None:
        context.load_cert_chain(own.cert, own.key, own.password)
    with socket.create_connection((host, port), timeout=PROBE_S) as plain:
        plain.sendall(question)
        if consent and (answer := plain.recv(len(consent))) != consent:
            raise ConnectionError(f"{host}:{port} does not begin TLS (it answers {answer!r})")
        with context.wrap_socket(plain, server_hostname=host) as stream:
            return read_peer_expiry(stream)
