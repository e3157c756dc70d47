"""The settings and time limits of a Kafka target's clients.

The guarantees depend on these, so they are set only here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from schemas.config.model import KafkaTargetConfig
from schemas.io.kafka_clients import (
    ClientLog,
    OnError,
    build_client_settings,
    ignore_client_error,
    open_admin,
    open_consumer,
    open_producer,
    reads_by_offset,
)

MAX_TRANSACTION_S = 10.0
"""Upper limit of `ClientTimeouts.transaction_s`, however long the lease is: readers of committed
records wait that long after an owner died.
"""
MIN_TRANSACTION_S = 1.0
"""Lower limit of `ClientTimeouts.transaction_s`, by librdkafka; also the shortest lease."""
ADMIN_CALL_TIMEOUT_S = 9.0
"""Seconds for one call of an administrative client."""
TOPIC_READ_TIMEOUT_S = 30.0
"""Seconds within which a reader must make progress: brokers check every 10 s which transactions have
timed out.
"""
MAX_CLIENT_RECORD_BYTES = 1_000_000_000
"""The largest record, in bytes, for which a client can be configured."""
PRODUCER_BATCH_BYTES = 1_000_000
"""Bytes that a producer sends together at most, if the topic accepts that much."""


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """Time limits of a Kafka target's clients, in seconds."""

    transaction_s: float
    """How long a dead owner's open transaction hides later records, unless its successor ends it
    sooner; below the lease.
    """
    call_s: float
    """Limit of one call of a client; below `transaction_s`, so that no call outlives a transaction."""
    abort_s: float
    """Limit of ending a failed transaction; if that does not succeed, the next producer ends it."""

    @classmethod
    def from_lease(cls, lease_s: float) -> ClientTimeouts:
        transaction = max(MIN_TRANSACTION_S, min(MAX_TRANSACTION_S, lease_s * 0.95))
        return cls(transaction, transaction * 0.9, transaction * 0.2)


def make_admin_client(config: KafkaTargetConfig, on_error: OnError) -> AdminClient:
    """Return an administrative client. `on_error` receives the reason why no broker can be reached.

    The client's calls themselves only report that they had no answer.
    """
    settings = build_client_settings(config.bootstrap, config.options, {"reconnect.backoff.max.ms": 500})
    return open_admin(settings, log=ClientLog.QUIET, on_error=on_error)


def make_unit_producer(config: KafkaTargetConfig, transactional_id: str, batch: int) -> Producer:
    """Return the producer of one unit.

    `batch`: bytes that are sent together, so that a broker's limit refuses only the one large record.
    """
    limits = ClientTimeouts.from_lease(config.lease_s)
    own: dict[str, Any] = {
        "transactional.id": transactional_id,
        "enable.idempotence": True,
        "acks": "all",
        "transaction.timeout.ms": int(limits.transaction_s * 1000),
        "message.timeout.ms": int(limits.call_s * 1000),
        "socket.timeout.ms": int(limits.call_s * 1000),
        "message.max.bytes": MAX_CLIENT_RECORD_BYTES,
        "batch.size": batch,
        "delivery.report.only.error": True,
        "reconnect.backoff.max.ms": 500,
    }
    settings = build_client_settings(config.bootstrap, config.options, own, {"linger.ms": 5})
    return open_producer(settings, log=ClientLog.QUIET, on_error=ignore_client_error)


def make_committed_consumer(config: KafkaTargetConfig) -> Consumer:
    """Return a consumer of committed records, which reports the end of each partition."""
    own = {
        **reads_by_offset(f"{config.prefix}.rowlock-reads-by-offset"),
        "isolation.level": "read_committed",
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 50,
        "fetch.message.max.bytes": 16_000_000,
        "receive.message.max.bytes": MAX_CLIENT_RECORD_BYTES,
        "reconnect.backoff.max.ms": 500,
    }
    return open_consumer(
        build_client_settings(config.bootstrap, config.options, own),
        log=ClientLog.QUIET,
        on_error=ignore_client_error,
    )
