"""The settings of a Kafka target's clients, and its limits of time: what the guarantees rest on is set here and by nobody else."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from schemas.config.model import KafkaTargetConfig
from schemas.io.kafka_clients import (
    ClientLog,
    client_settings,
    ignored,
    open_admin,
    open_consumer,
    open_producer,
    reads_by_offset,
)

TRANSACTION_S = 10.0
"""How long a dead owner's open transaction hides what is behind it, unless its successor ends it sooner: not above a worker's lease (`coordination.lease_s`)."""
CALL_S = 9.0
"""Seconds for one call of a client: below those of a transaction, so that no call outlives one."""
READ_S = 30.0
"""Seconds in which a reader must get on: brokers look every 10 s which transactions have run out."""
LARGEST = 1_000_000_000
"""Bytes of a record above which a client cannot be set."""
BATCH = 1_000_000
"""Bytes that a producer sends together at most, where the topic takes that much."""


def admin_of(config: KafkaTargetConfig) -> AdminClient:
    settings = client_settings(config.bootstrap, config.options, {"reconnect.backoff.max.ms": 500})
    return open_admin(settings, log=ClientLog.QUIET)


def producer_of(config: KafkaTargetConfig, transactional_id: str, batch: int) -> Producer:
    """Make the producer of one unit. `batch`: bytes that go together, so that a broker's limit refuses the one large record alone."""
    own: dict[str, Any] = {
        "transactional.id": transactional_id,
        "enable.idempotence": True,
        "acks": "all",
        "transaction.timeout.ms": int(TRANSACTION_S * 1000),
        "message.timeout.ms": int(CALL_S * 1000),
        "socket.timeout.ms": int(CALL_S * 1000),
        "message.max.bytes": LARGEST,
        "batch.size": batch,
        "reconnect.backoff.max.ms": 500,
    }
    settings = client_settings(config.bootstrap, config.options, own, {"linger.ms": 5})
    return open_producer(settings, log=ClientLog.QUIET, on_error=ignored)


def consumer_of(config: KafkaTargetConfig) -> Consumer:
    """Make a reader of committed records, which says where a partition ends."""
    own = {
        **reads_by_offset(f"{config.prefix}.rowlock-reads-by-offset"),
        "isolation.level": "read_committed",
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 50,
        "fetch.message.max.bytes": 16_000_000,
        "receive.message.max.bytes": LARGEST,
        "reconnect.backoff.max.ms": 500,
    }
    return open_consumer(
        client_settings(config.bootstrap, config.options, own), log=ClientLog.QUIET, on_error=ignored
    )
