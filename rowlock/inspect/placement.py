"""What the coordinator that leads knows of the units: whether each runs, and why not. For `status`, which else knows only topics.

The control topic names who leads and where its REST listens (of `rowlock run` any port may be); the units are asked for there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coordinator.control import fold as folds
from coordinator.control.codec import NewerVersionError, UndecodableError, decode
from coordinator.control.fold import Fold
from coordinator.control.topic import LOG, consumer_settings, topic_name
from deploy.embedded.patience import Patience, patient
from rowlock.coordinator.leader_client import LeaderClient
from rowlock.errors import CommandError
from schemas.config.model import Config, KafkaConfig
from schemas.io.kafka_clients import ignored, open_consumer

PATIENCE_S = 2.0
"""How long an election, or a leader that is just gone, may take before nobody counts as leading."""
READ_S = 6.0

Row = Mapping[str, Any]
START = "start `rowlock run`, or `rowlock coordinator` and `rowlock agent`"


@dataclass(frozen=True, slots=True)
class Placement:
    """`units`: name → its row as REST gives it. `problem`: why nothing is known, or nothing runs; "" where a leader answered.

    `known`: whether that means that nothing runs. A leader that cannot be asked from here may well have everything running.
    """

    units: Mapping[str, Row] = field(default_factory=dict)
    problem: str = ""
    known: bool = True


class PlacementReader:
    """Asks again and again (`--watch`); what it has read of the control topic it keeps."""

    def __init__(self, config: Config, ask: Callable[[str], list[Row]] | None = None) -> None:
        """`ask(rest)`: the units of the leader at that "host:port"; raises CommandError."""
        self._config = config
        self._topic = ControlView(config.kafka)
        self._ask = ask or self._units
        self._leader: tuple[str, LeaderClient] | None = None

    def close(self) -> None:
        self._topic.close()
        self._forget()

    def read(self) -> Placement:
        try:
            fold = self._topic.read()
        except KafkaException:
            return Placement(problem="the control topic cannot be read", known=False)
        candidate = fold.candidate
        if candidate is None or fold.resigned or not candidate.rest:
            return Placement(problem=f"nothing runs: no coordinator leads: {START}")
        try:
            rows = self._ask(candidate.rest)
        except CommandError as error:
            seen = f"coordinator {candidate.name}, the last to lead, does not answer at {candidate.rest}"
            gone = "does not answer (" in str(error) and "refused" in str(error)
            why = f"{seen}: {START}" if gone else f"{seen} ({error}): let this machine reach it"
            return Placement(problem=why, known=gone)
        return Placement({str(row["unit"]): row for row in rows})

    def _units(self, rest: str) -> list[Row]:
        if self._leader is None or self._leader[0] != rest:
            self._forget()
            coordination, prefix = self._config.coordination, self._config.kafka.prefix
            client = LeaderClient(
                coordination, prefix=prefix, patience_s=PATIENCE_S, at=rest, find=lambda: None
            )
            self._leader = rest, client
        try:
            return list(self._leader[1].all_units({}))
        except CommandError:
            self._forget()
            raise

    def _forget(self) -> None:
        if self._leader is not None:
            self._leader[1].close()
            self._leader = None


class ControlView:
    """Folds the control topic as far as it is; read-only. One thread."""

    def __init__(self, kafka: KafkaConfig) -> None:
        self._kafka = kafka
        self._fold = Fold()
        self._consumer: Any = None

    def read(self) -> Fold:
        """Raises KafkaException when the topic's end is not reached in time."""
        if self._consumer is None:
            settings = {**consumer_settings(self._kafka), "allow.auto.create.topics": False}
            self._consumer = open_consumer(settings, log=LOG, on_error=ignored)
        if topic_name(self._kafka) not in self._consumer.list_topics(timeout=patient(READ_S)).topics:
            return self._fold
        self._consumer.assign([TopicPartition(topic_name(self._kafka), 0, self._fold.end)])
        patience = Patience(READ_S)
        while not patience.over():
            for message in self._consumer.consume(1000, 0.2):
                if self._at_end(message):
                    return self._fold
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _at_end(self, message: Any) -> bool:
        error = message.error()
        if error is not None:
            return bool(error.code() == KafkaError._PARTITION_EOF)
        value = message.value()
        try:
            folds.apply(self._fold, message.offset(), decode(value), len(value or b""))
        except (UndecodableError, NewerVersionError) as unread:
            folds.foreign(self._fold, message.offset(), newer=isinstance(unread, NewerVersionError))
        return False

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
