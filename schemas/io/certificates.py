"""Certificates of TLS: why one was refused, and until when those in files are valid."""

from __future__ import annotations

import re
import ssl
from datetime import datetime
from pathlib import Path

_RENEW = "renew the server's certificate (or that of its authority in `tls.ca`)"
_NAME = "write the host as the server's certificate names it (`tls.verify: ca` compares no names)"
_AUTHORITY = "give the certificate of the authority that signed the server's certificate as `tls.ca`"
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
            return _BY_CODE.get(seen.verify_code, "see the server's certificate")
        # PyMySQL keeps what caused an error beside it
        seen = getattr(seen, "original_exception", None) or seen.__cause__ or seen.__context__
    text = str(error)
    return next((remedy for words, remedy in _BY_TEXT if re.search(words, text)), None)


def read_expiries(file: Path) -> list[datetime]:
    """Return when each certificate of a PEM file expires, in the file's order. Raises OSError, ValueError."""
    from cryptography import x509

    return [each.not_valid_after_utc for each in x509.load_pem_x509_certificates(file.read_bytes())]
