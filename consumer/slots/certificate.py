"""The certificate of one run of the apply process, which its slots trust and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "rowlock-slots"
"""The name in the certificate. Slots trust the certificate itself, whatever address it comes from."""
VALID = timedelta(days=3650)
"""A process may run for years; the certificate ends with it."""


@dataclass(frozen=True, slots=True)
class SlotCertificate:
    """A self-signed certificate and its key, both PEM."""

    pem: bytes
    key: bytes

    def __repr__(self) -> str:
        return "SlotCertificate()"


def make_certificate() -> SlotCertificate:
    """Return a new certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks of hosts differ
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return SlotCertificate(
        signed.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
