"""Certificates of the transport: TLS, or mutual TLS where an agent can only speak for the name in its certificate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True)
class Security:
    """PEM files. `ca` signs both sides' certificates; the server's must name its host as a subject alternative name.

    `mutual`: clients show a certificate as well; without, `cert` and `key` are not used by clients.
    """

    ca: Path
    cert: Path
    key: Path
    mutual: bool = True

    def load_server_credentials(self) -> grpc.ServerCredentials:
        """Raises OSError for a file that cannot be read."""
        pair = (self.key.read_bytes(), self.cert.read_bytes())
        return grpc.ssl_server_credentials([pair], self.ca.read_bytes() if self.mutual else None, self.mutual)

    def load_channel_credentials(self) -> grpc.ChannelCredentials:
        """Raises OSError for a file that cannot be read."""
        ca = self.ca.read_bytes()
        if not self.mutual:
            return grpc.ssl_channel_credentials(ca)
        return grpc.ssl_channel_credentials(ca, self.key.read_bytes(), self.cert.read_bytes())


def list_peer_names(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """Return the names in a peer's certificate: its common name and its subject alternative names."""
    keys = ("x509_common_name", "x509_subject_alternative_name")
    return frozenset(name.decode(errors="replace") for key in keys for name in auth_context.get(key, ()))
