"""The SASL passwords with which this process logs in to Kafka, where they have been replaced.

A client's connections outlive a change of its password, but not a restart of the broker. So a new password
is given to the living clients of its user, whose next connections use it, and to clients that are opened
later with settings from before the change.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any, Protocol
from weakref import WeakSet

from schemas.config.model import Config
from schemas.config.servers import KafkaConfig, KafkaTargetConfig

BOOTSTRAP = "bootstrap.servers"
_USER, _PASSWORD = "sasl.username", "sasl.password"

_Login = tuple[str, str]
"""The bootstrap addresses and the user."""


class SaslClient(Protocol):
    def set_sasl_credentials(self, username: str, password: str, /) -> object:
        """Use the password for connections from now on. Raises RuntimeError if the client is closed."""


class KafkaPasswords:
    """The replaced passwords, and the living clients that log in with a password."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._replaced: dict[_Login, str] = {}
        self._clients: dict[_Login, WeakSet[Any]] = {}

    def update_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return a client's settings with the present password of its user."""
        login = _find_login(str(settings[BOOTSTRAP]), settings)
        with self._mutex:
            password = None if login is None else self._replaced.get(login)
        return dict(settings) if password is None else {**settings, _PASSWORD: password}

    def add_client(self, client: SaslClient, settings: Mapping[str, Any]) -> None:
        """Give the client, opened with these settings, each later password of its user."""
        login = _find_login(str(settings[BOOTSTRAP]), settings)
        if login is None:
            return
        with self._mutex:
            self._clients.setdefault(login, WeakSet()).add(client)
            password = self._replaced.get(login)
        if password not in (None, settings[_PASSWORD]):  # replaced while the client was opened
            client.set_sasl_credentials(login[1], password)

    def replace_password(self, bootstrap: str, options: Mapping[str, str]) -> None:
        """Use the password of these options for their user from now on."""
        login = _find_login(bootstrap, options)
        if login is None:
            return
        with self._mutex:
            if self._replaced.get(login) == options[_PASSWORD]:
                return
            self._replaced[login] = options[_PASSWORD]
            clients = list(self._clients.get(login, ()))
        for client in clients:
            with contextlib.suppress(RuntimeError):  # it is closed
                client.set_sasl_credentials(login[1], options[_PASSWORD])


def _find_login(bootstrap: str, options: Mapping[str, Any]) -> _Login | None:
    return (bootstrap, str(options[_USER])) if _USER in options and _PASSWORD in options else None


KAFKA_PASSWORDS = KafkaPasswords()
"""Those of this process."""


def use_kafka_passwords(config: Config) -> None:
    """Use the configuration's passwords of Kafka, and of Kafka targets, from now on."""
    targets = (target for target in config.targets.values() if isinstance(target, KafkaTargetConfig))
    use_passwords_of(config.kafka, *targets)


def use_passwords_of(*servers: KafkaConfig | KafkaTargetConfig) -> None:
    """Use the passwords of these sections of a configuration from now on."""
    for server in servers:
        KAFKA_PASSWORDS.replace_password(server.bootstrap, server.options)
