"""A broker with users: TLS and SCRAM on one listener, rights by ACL; and a listener behind a proxy that hides what an old broker lacks."""

from __future__ import annotations

import socket
import struct
import threading

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from deploy.embedded.ports import pick
from deploy.embedded.services import Kafka
from tests.certificates import Issued

API_VERSIONS, INIT_PRODUCER_ID = 18, 22
Right = tuple[ResourceType, str, AclOperation]
"""On which kind of thing, those whose names begin so, and what."""


class SecureKafka(Kafka):
    """`bootstrap` is for the tests, who may everything there; `secure` asks for TLS and a user; `old` is to be reached by a proxy at `old_seen`."""

    def __init__(self, certificate: Issued) -> None:
        super().__init__()
        self._certificate = certificate
        self.secure_port, self.old_port, self.old_seen = pick(), pick(), pick()

    @property
    def secure(self) -> str:
        return f"{self.host}:{self.secure_port}"

    def _defaults(self) -> list[str]:
        pem = self.home / "listener.pem"
        pem.write_text(self._certificate.key.read_text() + self._certificate.cert.read_text())
        mine = {
            "listeners": f"BROKER://{self.host}:{self.port},SECURE://{self.host}:{self.secure_port},OLD://{self.host}:{self.old_port},"
            f"CONTROLLER://{self.host}:{self.controller_port}",
            "advertised.listeners": f"BROKER://{self.host}:{self.port},SECURE://{self.host}:{self.secure_port},OLD://{self.host}:{self.old_seen}",
            "listener.security.protocol.map": "BROKER:PLAINTEXT,OLD:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT",
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": str(pem),
            "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.secure.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        kept = [line for line in super()._defaults() if line.partition("=")[0] not in mine]
        return [*kept, *(f"{name}={value}" for name, value in mine.items())]

    def add_user(self, name: str, password: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, info, password.encode())
        admin = self._admin()
        admin.alter_user_scram_credentials([change])[name].result(15)

    def allow(self, user: str, *rights: Right) -> None:
        bindings = [
            AclBinding(kind, name, ResourcePatternType.PREFIXED, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for kind, name, operation in rights
        ]  # fmt: skip
        admin = self._admin()
        for future in admin.create_acls(bindings).values():
            future.result(15)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})


class OldBroker:
    """A proxy in front of a broker, which seems to be one that has no transactions: of what it can, InitProducerId is taken out."""

    def __init__(self, port: int, behind: int) -> None:
        self._behind = behind
        self._listener = socket.create_server(("127.0.0.1", port))
        self.bootstrap = f"127.0.0.1:{port}"
        threading.Thread(target=self._run, daemon=True).start()

    def __enter__(self) -> OldBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._behind))
            asked: dict[int, int] = {}
            for each in ((client, broker, asked, True), (broker, client, asked, False)):
                threading.Thread(target=self._pass, args=each, daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, asked: dict[int, int], requests: bool) -> None:
        """Pass frames on. `asked`: correlation id → version of the requests for what the broker can."""
        try:
            while (frame := _frame(one)) is not None:
                if requests:
                    key, version, number = struct.unpack(">hhi", frame[:8])
                    if key == API_VERSIONS:
                        asked[number] = version
                elif (number := struct.unpack(">i", frame[:4])[0]) in asked:
                    frame = without(frame, asked.pop(number))
                other.sendall(struct.pack(">i", len(frame)) + frame)
        except OSError:
            pass
        finally:
            one.close()
            other.close()


def _frame(one: socket.socket) -> bytes | None:
    head = _exactly(one, 4)
    return None if head is None else _exactly(one, struct.unpack(">i", head)[0])


def _exactly(one: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        more = one.recv(count - len(data))
        if not more:
            return None
        data += more
    return data


def without(frame: bytes, version: int) -> bytes:
    """Return the answer to a request for what a broker can, without InitProducerId. From version 3 on an entry ends with a byte of tags, and
    the count of entries is one more than they are; it is below 127."""
    head, body = frame[:6], frame[6:]
    size, begin = (7, 1) if version >= 3 else (6, 4)
    count = body[0] - 1 if version >= 3 else struct.unpack(">i", body[:4])[0]
    entries = [body[begin + at * size : begin + (at + 1) * size] for at in range(count)]
    kept = [each for each in entries if struct.unpack(">h", each[:2])[0] != INIT_PRODUCER_ID]
    said = bytes([len(kept) + 1]) if version >= 3 else struct.pack(">i", len(kept))
    return head + said + b"".join(kept) + body[begin + count * size :]
