"""The constructors of all Kafka clients, and the settings that they share.

Each package passes the settings that its guarantees depend on (`own`). The user's `kafka.options`, such
as security, override only defaults. Lines that a client logs go through rowlock's logger, unless the
caller reports them itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from schemas.io.kafka_outages import OutageWatch
from schemas.io.kafka_passwords import BOOTSTRAP, KAFKA_PASSWORDS, SaslClient
from schemas.io.logs import make_librdkafka_logger

_CONNECTION = (
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "broker.address.",
    "client.dns.",
)
"""The settings of a connection begin with one of these."""
_PROBE_TIMEOUT_S = 2.0

Settings = dict[str, Any]
OnError = Callable[[KafkaError], None]
ClientT = TypeVar("ClientT", bound=SaslClient)


class ClientLog(Enum):
    """The level of librdkafka's own log lines.

    They are logged (a broker that is away: see schemas/io/kafka_outages.py), for debugging only, or dropped.
    """

    LOUD = logging.INFO
    QUIET = logging.DEBUG
    SILENT = 0


_WATCHES: dict[str, OutageWatch] = {}
"""The watch of each Kafka to which this process has clients, by its bootstrap addresses."""
_CONNECTIONS: dict[str, Settings] = {}
"""The settings with which its clients connect."""


class _SilentLogger:
    def log(self, *_: object, **__: object) -> None:
        """Ignore the line."""


class _SharedProducer(Producer):
    """A producer that others can refer to weakly."""


class _SharedConsumer(Consumer):
    """A consumer that others can refer to weakly, and that takes a password in the thread that uses it.

    The library's own call waits for a call of another thread, and a thread that reads again and again never
    lets it in.
    """

    _login: tuple[str, str] | None = None
    """The user and the password that the next call is to log in with."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self._login = username, password

    def poll(self, *args: Any, **options: Any) -> Any:
        self._use_login()
        return super().poll(*args, **options)

    def consume(self, *args: Any, **options: Any) -> Any:
        self._use_login()
        return super().consume(*args, **options)

    def list_topics(self, *args: Any, **options: Any) -> Any:
        self._use_login()
        return super().list_topics(*args, **options)

    def get_watermark_offsets(self, *args: Any, **options: Any) -> Any:
        self._use_login()
        return super().get_watermark_offsets(*args, **options)

    def _use_login(self) -> None:
        if (login := self._login) is not None:
            self._login = None
            super().set_sasl_credentials(*login)


def ignore_client_error(error: KafkaError) -> None:
    """Ignore an error without a message: an exception reports it as well."""
    del error


def build_client_settings(
    bootstrap: str,
    options: Mapping[str, str],
    own: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the settings of one client. `own` overrides the user's `options`, which override `defaults`."""
    return {**(defaults or {}), **options, "bootstrap.servers": bootstrap, **own}


def reads_by_offset(group: str) -> Settings:
    """Return the settings of consumers that start at given offsets and commit none.

    `group`: required by the library.
    """
    return {
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        # By default the library rests for a second whenever it has read as far ahead as it may.
        "fetch.queue.backoff.ms": 10,
    }


def build_loss_settings() -> Settings:
    """Return the settings by which a client notices within seconds that no broker answers. By default it
    takes a minute if nothing comes back, and half a minute for each connection."""
    return {"socket.timeout.ms": 6_000, "socket.connection.setup.timeout.ms": 5_000}


def report_unreachable(report: Callable[[str], None]) -> OnError:
    """Return a client's `on_error` that passes on why no broker can be reached, and nothing else."""

    def handle_error(error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            report(f"Kafka: {error.str()}")

    return handle_error


def open_producer(
    settings: Settings, *, log: ClientLog = ClientLog.LOUD, on_error: OnError | None = None
) -> Producer:
    return _open_client(_SharedProducer, settings, log, on_error)


def open_consumer(
    settings: Settings, *, log: ClientLog = ClientLog.LOUD, on_error: OnError | None = None
) -> Consumer:
    """Return a consumer. Raises KafkaException for settings that the library refuses."""
    return _open_client(_SharedConsumer, settings, log, on_error)


def open_admin(
    settings: Settings, *, log: ClientLog = ClientLog.LOUD, on_error: OnError | None = None
) -> AdminClient:
    return _open_client(AdminClient, settings, log, on_error)


def _open_client(
    make: Callable[..., ClientT], settings: Settings, log: ClientLog, on_error: OnError | None
) -> ClientT:
    """Return a client that logs in with the present password, and with each later one of its user."""
    settings = KAFKA_PASSWORDS.update_settings(settings)
    own = settings if on_error is None else {**settings, "error_cb": on_error}
    client = make(own, logger=_make_logger(log, settings))
    KAFKA_PASSWORDS.add_client(client, settings)
    return client


def _make_logger(log: ClientLog, settings: Settings) -> Any:
    if log is ClientLog.SILENT:
        return _SilentLogger()
    if log is ClientLog.QUIET:
        return make_librdkafka_logger(most=log.value)
    watch = _find_outage_watch(settings)
    return make_librdkafka_logger(most=log.value, is_logged=watch.record_line)


def _find_outage_watch(settings: Settings) -> OutageWatch:
    """Return the watch that the clients of this process share that are connected to the same Kafka."""
    bootstrap = str(settings[BOOTSTRAP])
    _CONNECTIONS[bootstrap] = {name: settings[name] for name in settings if name.startswith(_CONNECTION)}
    return _WATCHES.setdefault(bootstrap, OutageWatch(partial(_is_answering, bootstrap)))


def _is_answering(bootstrap: str, broker: str) -> bool:
    """Return whether a broker of this Kafka answers a request of a new client."""
    present = KAFKA_PASSWORDS.update_settings({**_CONNECTIONS[bootstrap], BOOTSTRAP: bootstrap})
    settings = {**present, BOOTSTRAP: broker}
    admin = AdminClient(settings, logger=_SilentLogger())
    try:
        admin.describe_cluster(request_timeout=_PROBE_TIMEOUT_S).result()
    except KafkaException as error:
        return bool(error.args[0].code() > 0) and not error.args[0].retriable()  # negative: the client's own
    return True
