"""Certificates of the transport: TLS, or mutual TLS, in which an agent can only use the name in its
certificate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True)
class Security:
    """PEM files of the transport."""

    ca: Path
    """Signs the certificates of both sides. The server's must contain its host as a subject alternative
    name.
    """
    cert: Path
    key: Path
    mutual: bool = True
    """Whether clients present a certificate as well; otherwise they do not use `cert` and `key`."""

    def load_server_credentials(self) -> grpc.ServerCredentials:
        """Return the server's credentials. Raises OSError if a file cannot be read."""
        pair = (self.key.read_bytes(), self.cert.read_bytes())
        return grpc.ssl_server_credentials([pair], self.ca.read_bytes() if self.mutual else None, self.mutual)

    def load_channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the client's credentials. Raises OSError if a file cannot be read."""
        ca = self.ca.read_bytes()
        if not self.mutual:
            return grpc.ssl_channel_credentials(ca)
        return grpc.ssl_channel_credentials(ca, self.key.read_bytes(), self.cert.read_bytes())


def list_peer_names(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """Return the names in a peer's certificate: its common name and its subject alternative names."""
    keys = ("x509_common_name", "x509_subject_alternative_name")
    return frozenset(name.decode(errors="replace") for key in keys for name in auth_context.get(key, ()))
