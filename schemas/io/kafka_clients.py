"""The constructors of all Kafka clients, and the settings that they share.

Each package passes the settings that its guarantees depend on (`own`). The user's `kafka.options`, such
as security, override only defaults. Lines that a client logs go through rowlock's logger, unless the
caller reports them itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from schemas.io.logs import make_librdkafka_logger

Settings = dict[str, Any]
OnError = Callable[[KafkaError], None]


class ClientLog(Enum):
    """The level of librdkafka's own log lines.

    They are logged as they are (a broker lost, found again), for debugging only, or dropped.
    """

    LOUD = logging.INFO
    QUIET = logging.DEBUG
    SILENT = 0


class _SilentLogger:
    def log(self, *_: object, **__: object) -> None:
        """Ignore the line."""


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
    return {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "error"}


def open_producer(
    settings: Settings, *, log: ClientLog = ClientLog.LOUD, on_error: OnError | None = None
) -> Producer:
    return Producer(_complete_settings(settings, on_error), logger=_make_logger(log))


def open_consumer(
    settings: Settings, *, log: ClientLog = ClientLog.LOUD, on_error: OnError | None = None
) -> Consumer:
    """Return a consumer. Raises KafkaException for settings that the library refuses."""
    return Consumer(_complete_settings(settings, on_error), logger=_make_logger(log))


def open_admin(
    settings: Settings, *, log: ClientLog = ClientLog.LOUD, on_error: OnError | None = None
) -> AdminClient:
    return AdminClient(_complete_settings(settings, on_error), logger=_make_logger(log))


def _complete_settings(settings: Settings, on_error: OnError | None) -> Settings:
    return settings if on_error is None else {**settings, "error_cb": on_error}


def _make_logger(log: ClientLog) -> Any:
    return _SilentLogger() if log is ClientLog.SILENT else make_librdkafka_logger(most=log.value)
