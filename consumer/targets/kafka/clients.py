"""The settings of a Kafka target's clients, and its limits of time: what the guarantees rest on is set here and by nobody else."""

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
"""The most of `ClientTimeouts.transaction_s`, however long the lease is: readers of committed records wait for it behind a dead owner."""
MIN_TRANSACTION_S = 1.0
"""The least of it, by librdkafka: also the shortest lease."""
ADMIN_CALL_TIMEOUT_S = 9.0
"""Seconds for one call of an administrative client."""
TOPIC_READ_TIMEOUT_S = 30.0
"""Seconds in which a reader must get on: brokers look every 10 s which transactions have run out."""
MAX_CLIENT_RECORD_BYTES = 1_000_000_000
"""Bytes of a record above which a client cannot be set."""
PRODUCER_BATCH_BYTES = 1_000_000
"""Bytes that a producer sends together at most, where the topic takes that much."""


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """Seconds. `transaction_s`: how long a dead owner's open transaction hides what is behind it, unless its successor ends it sooner: below a
    worker's lease. `call_s`: of one call of a client: below that, so that no call outlives a transaction. `abort_s`: of ending a transaction that
    failed: where that does not succeed, the next producer ends it."""

    transaction_s: float
    call_s: float
    abort_s: float

    @classmethod
    def from_lease(cls, lease_s: float) -> ClientTimeouts:
        transaction = max(MIN_TRANSACTION_S, min(MAX_TRANSACTION_S, lease_s * 0.95))
        return cls(transaction, transaction * 0.9, transaction * 0.2)


def make_admin_client(config: KafkaTargetConfig, on_error: OnError) -> AdminClient:
    """`on_error` is told why no broker can be spoken with: the client's calls only say that they had no answer."""
    settings = build_client_settings(config.bootstrap, config.options, {"reconnect.backoff.max.ms": 500})
    return open_admin(settings, log=ClientLog.QUIET, on_error=on_error)


def make_unit_producer(config: KafkaTargetConfig, transactional_id: str, batch: int) -> Producer:
    """Make the producer of one unit. `batch`: bytes that go together, so that a broker's limit refuses the one large record alone."""
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
    """Make a reader of committed records, which says where a partition ends."""
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
