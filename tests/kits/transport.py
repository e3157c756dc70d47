"""Servers and clients of the heartbeat transport on loopback, with what they said."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coordinator.core.messages import Down, Header, Heartbeat
from coordinator.transport.client import ClientTiming, HeartbeatClient
from coordinator.transport.events import (
    LeaderInfo,
    MessagesArrived,
    StreamClosed,
    StreamOpened,
    TransportEvent,
)
from coordinator.transport.security import Security
from coordinator.transport.server import HeartbeatServer
from schemas.io.grpc_settings import Keepalive

#: Quick enough for tests, slow enough for a busy machine.
QUICK = ClientTiming(
    ask=1.0, opening=1.0, quiet=30.0, retry_first=0.01, retry_most=0.1, keepalive=Keepalive(0.3, 0.7)
)
PATIENT = Keepalive(600.0, 600.0)


def until(holds: Callable[[], Any], seconds: float = 180.0) -> Any:
    """Wait until `holds()` is true and return it; fail after so long."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.005)
    return found


class RecordingServer:
    """A server whose events are kept."""

    def __init__(self, **options: Any) -> None:
        self.events: list[TransportEvent] = []
        self.server = HeartbeatServer("127.0.0.1:0", self.hear, **options)
        self.port = self.server.start()
        self.address = f"127.0.0.1:{self.port}"

    def hear(self, event: TransportEvent) -> None:
        self.events.append(event)

    def lead(self, rev: int) -> None:
        self.server.set_leader(LeaderInfo(rev, self.address, "", mine=True))

    def follow(self, rev: int, address: str, rest: str = "") -> None:
        self.server.set_leader(LeaderInfo(rev, address, rest, mine=False))

    def opened(self, agent: str = "a") -> list[int]:
        return [e.stream for e in list(self.events) if isinstance(e, StreamOpened) and e.agent == agent]

    def closed(self, agent: str = "a") -> dict[int, str]:
        return {
            e.stream: e.why for e in list(self.events) if isinstance(e, StreamClosed) and e.agent == agent
        }

    def arrived(self, stream: int | None = None) -> list[Any]:
        found = [e for e in list(self.events) if isinstance(e, MessagesArrived)]
        return [e.message for e in found if stream is None or e.stream == stream]


class Agent:
    """A client whose messages are kept."""

    def __init__(
        self,
        name: str,
        *peers: str,
        security: Security | None = None,
        system: str = "",
        token: str = "",
        timing: ClientTiming = QUICK,
    ) -> None:
        self.name = name
        self.heard: list[Down] = []
        self.client = HeartbeatClient(
            name, peers, self.hear, security=security, system=system, token=token, timing=timing
        )
        self._numbers = iter(range(1, 10**9))

    def hear(self, message: Down) -> None:
        self.heard.append(message)

    def beat(self, agent_epoch: int = 1) -> bool:
        """Send a heartbeat, numbered; whether it was taken."""
        number = next(self._numbers)
        return self.client.send(Heartbeat(Header(1, agent_epoch, 0, number), self.name, float(number)))


@contextlib.contextmanager
def serving(**options: Any) -> Iterator[RecordingServer]:
    server = RecordingServer(**options)
    try:
        yield server
    finally:
        server.server.close()


@contextlib.contextmanager
def calling(name: str, *peers: str, **options: Any) -> Iterator[Agent]:
    agent = Agent(name, *peers, **options)
    agent.client.start()
    try:
        yield agent
    finally:
        agent.client.close(0.5)


def threads_of(*words: str) -> list[str]:
    """Return the names of running threads that contain one of the words."""
    return [t.name for t in threading.enumerate() if any(word in t.name for word in words)]


# certificates


class Authority:
    """A certificate authority in a folder, made for one test."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(
            self._subject, self._key, [(x509.BasicConstraints(ca=True, path_length=0), True)]
        )
        self.ca = self._write(f"{name}.pem", certificate.public_bytes(serialization.Encoding.PEM))

    def security(self, common_name: str, *, names: tuple[str, ...] = (), mutual: bool = True) -> Security:
        """Return a key pair for 127.0.0.1 (and `names`), signed by this authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternative: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        alternative += [x509.DNSName(name) for name in names]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        certificate = self._sign(subject, key, [(x509.SubjectAlternativeName(alternative), False)])
        cert = self._write(
            f"{self._name}-{common_name}.crt", certificate.public_bytes(serialization.Encoding.PEM)
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Security(self.ca, cert, self._write(f"{self._name}-{common_name}.key", private), mutual)

    def _sign(self, subject: x509.Name, key: Any, extensions: list[tuple[Any, bool]]) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._subject)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=1))
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, content: bytes) -> Path:
        path = self._folder / name
        path.write_bytes(content)
        return path
