"""Several brokers that are one cluster: everything is replicated, and a write is acknowledged by two of
three."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.embedded.server_process import ServerCommand
from deploy.embedded.services import Kafka, ServiceSet
from tests.kits.waiting import until

SIZE = 3
MEMORY = "-Xmx256m"
TRANSACTIONS, PARTITIONS = "__transaction_state", 4


class Broker(Kafka):
    """One of them, broker and controller. `number` from 1 on."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.cluster, self.voters = "", ""

    def _prepare_data(self) -> ServerCommand:
        return self._build_java_command(
            "kafka.tools.StorageTool", "format", "-t", self.cluster, "-c", self._write_settings()
        )

    def _build_java_command(self, main: str, *arguments: str | Path) -> list[str | Path]:
        reported = super()._build_java_command(main, *arguments)
        return [MEMORY if isinstance(each, str) and each.startswith("-Xmx") else each for each in reported]

    def _list_default_settings(self) -> list[str]:
        mine = {
            "node.id": str(self.number),
            "controller.quorum.voters": self.voters,
            "default.replication.factor": str(SIZE),
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": str(SIZE),
            "transaction.state.log.replication.factor": str(SIZE),
            "transaction.state.log.min.isr": "2",
            "transaction.state.log.num.partitions": str(PARTITIONS),
        }
        kept = [line for line in super()._list_default_settings() if line.partition("=")[0] not in mine]
        return [*kept, *(f"{name}={value}" for name, value in mine.items())]


class Brokers(ServiceSet):
    """The cluster, in a `with`. `bootstrap` names all of them."""

    def __init__(self) -> None:
        self.members = [Broker(number) for number in range(1, SIZE + 1)]
        super().__init__(*self.members)
        voters = ",".join(f"{each.number}@{each.host}:{each.controller_port}" for each in self.members)
        cluster = uuid4().hex[:22]
        for each in self.members:
            each.cluster, each.voters = cluster, voters

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.members)

    def leader(self, topic: str, partition: int = 0) -> Broker:
        """Return who leads a partition, once somebody does."""
        return self.members[int(until(lambda: self._leader(topic, partition), f"a leader of {topic}")) - 1]

    def _leader(self, topic: str, partition: int) -> int | None:
        """Numbers of brokers begin with 1."""
        try:
            found = self._admin().list_topics(topic, timeout=5).topics[topic].partitions
        except KafkaException:
            return None
        if partition not in found or found[partition].leader < 1:
            return None
        return int(found[partition].leader)

    def coordinator(self, transactional_id: str) -> Broker:
        """Return who coordinates the transactions of an id: by its hash as Java has it."""
        number = 0
        for character in transactional_id:
            number = (31 * number + ord(character)) & 0xFFFFFFFF
        return self.leader(TRANSACTIONS, (number & 0x7FFFFFFF) % PARTITIONS)

    def in_sync(self, topic: str) -> bool:
        """Tell whether all have what is in a topic."""
        try:
            found = self._admin().list_topics(topic, timeout=5).topics[topic].partitions
        except KafkaException:
            return False
        return bool(found) and all(len(each.isrs) == SIZE for each in found.values())

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
