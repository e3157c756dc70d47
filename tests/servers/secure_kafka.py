"""A broker with users: TLS and SCRAM on one listener, rights by ACL; another listener through a relay
(tests.servers.kafka_relays)."""

from __future__ import annotations

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

from deploy.embedded.ports import pick_port
from tests.servers.certificates import Issued
from tests.servers.kafka_relays import RelayedKafka

Right = tuple[ResourceType, str, AclOperation]
"""On which kind of thing, those whose names begin so, and what."""
PLAIN_USER, PLAIN_PASSWORD = "plain", "horse-correct"
"""The user of SASL/PLAIN: such users are in the broker's settings."""


class SecureKafka(RelayedKafka):
    """`bootstrap` is for the tests, who may everything there; `secure` asks for TLS and a user, by SCRAM or
    PLAIN."""

    def __init__(self, certificate: Issued) -> None:
        super().__init__()
        self._certificate = certificate
        self.secure_port = pick_port()

    @property
    def secure(self) -> str:
        return f"{self.host}:{self.secure_port}"

    def _listeners(self) -> dict[str, int]:
        return {**super()._listeners(), "SECURE": self.secure_port}

    def _mine(self) -> dict[str, str]:
        pem = self.home.folder / "listener.pem"
        pem.write_text(self._certificate.key.read_text() + self._certificate.cert.read_text())
        mine, login = super()._mine(), "org.apache.kafka.common.security"
        return mine | {
            "listener.security.protocol.map": mine["listener.security.protocol.map"].replace("SECURE:PLAINTEXT", "SECURE:SASL_SSL"),  # noqa: E501
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.location": str(pem),
            "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            "listener.name.secure.scram-sha-512.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",  # noqa: E501
            "listener.name.secure.plain.sasl.jaas.config": f'{login}.plain.PlainLoginModule required '
                f'user_{PLAIN_USER}="{PLAIN_PASSWORD}";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }  # fmt: skip

    def add_user(self, name: str, password: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, info, password.encode())
        admin = self._admin()
        admin.alter_user_scram_credentials([change])[name].result(60)

    def allow(self, user: str, *rights: Right) -> None:
        bindings = [
            AclBinding(kind, name, ResourcePatternType.PREFIXED, f"User:{user}", "*", operation,
            AclPermissionType.ALLOW)
            for kind, name, operation in rights
        ]  # fmt: skip
        admin = self._admin()
        for future in admin.create_acls(bindings).values():
            future.result(60)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
