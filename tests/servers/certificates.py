"""Certificates made for one test: an authority of its own, and what it issues."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SIGNS = x509.KeyUsage(
    digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
    key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
)  # fmt: skip


@dataclass(frozen=True)
class Issued:
    """PEM files."""

    ca: Path
    cert: Path
    key: Path


class Authority:
    """Issues certificates into `folder`. `anonymous`: they do not identify the authority's key."""

    def __init__(self, folder: Path, name: str = "test authority", *, anonymous: bool = False) -> None:
        self._folder, self._name, self._anonymous = folder, _name(name), anonymous
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        own = _begin(self._name, self._name, self._key.public_key()).add_extension(constraints, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        own = own.add_extension(identifier, critical=False).add_extension(_SIGNS, critical=True)
        self._signed = own.sign(self._key, hashes.SHA256())
        self.ca = folder / f"{name.replace(' ', '-')}.pem"
        self.ca.write_bytes(self._signed.public_bytes(serialization.Encoding.PEM))

    def issue(self, *names: str, until: datetime | None = None) -> Issued:
        """Return a certificate whose common name is the first of `names` and whose alternative names are
        all. `until`: when it expires (default: in a day)."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        begun = _begin(_name(names[0]), self._name, key.public_key(), until).add_extension(
            alternatives, critical=False
        )
        if not self._anonymous:  # Python 3.13 demands it
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            begun = begun.add_extension(issuer, critical=False)
        signed = begun.sign(self._key, hashes.SHA256())
        cert, private = self._folder / f"{names[0]}.pem", self._folder / f"{names[0]}.key"
        cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.PKCS8
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        return Issued(self.ca, cert, private)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _begin(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, until: datetime | None = None
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(until or now + timedelta(days=1))
    )
