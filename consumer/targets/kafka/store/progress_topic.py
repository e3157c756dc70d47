"""The topic in which a Kafka target keeps progress, read from its beginning; and the size of records,
by which a record that is too large is refused before it is written.
"""

from __future__ import annotations

import msgspec

from consumer.errors import TargetConfigError, UnitStoppedError
from consumer.ordering.model import ApplyUnit
from consumer.targets.kafka.reader import CommittedReader
from consumer.targets.kafka.store.state import KnownUnit, TopicUnits, yield_progress_pairs
from consumer.targets.kafka.topics import TargetTopics, TopicFacts
from consumer.targets.kafka.writer import Outgoing
from schemas.config.model import KafkaTargetConfig

PROGRESS_TOPIC_SETTINGS = {"cleanup.policy": "compact"}
OVERHEAD = 200
"""Upper limit of a record's bytes beside key, value and headers, together with a batch that contains
only it.
"""


class ProgressTopic:
    """The progress topic, read from its beginning."""

    def __init__(self, config: KafkaTargetConfig, topics: TargetTopics) -> None:
        self.name = f"{config.prefix}.rowlock_progress"
        self._config, self._topics = config, topics
        self._reader: CommittedReader | None = None
        self.facts: TopicFacts | None = None
        self.units = TopicUnits()

    def ensure_exists(self) -> None:
        """Create the topic where it is missing. Raises TargetConfigError if an existing one is unusable."""
        found = self._topics.read_topic_facts(self.name)
        if found is None:
            found = self._topics.ensure_topic(self.name, 1, PROGRESS_TOPIC_SETTINGS)
        self._require_usable(found)

    def _require_usable(self, found: TopicFacts | None) -> None:
        if found is not None and found.partitions != 1:
            raise TargetConfigError(
                f"topic {self.name} has {found.partitions} partitions and must have one, because it keeps "
                "the units' progress in order",
                "create it again while "
                "nothing writes to the target, or choose another `prefix` of the target",
            )
        if found is not None and not found.compacted:
            raise TargetConfigError(
                f"topic {self.name} would forget the progress of units", "set its cleanup.policy to compact"
            )
        self.facts = found

    def read_new_records(self, *, stable: bool = False) -> TopicUnits:
        """Read to the present end (`stable`: to the first open transaction). Raises consumer.errors."""
        if self._reader is None:
            if self.facts is None:
                self._require_usable(self._topics.read_topic_facts(self.name))
            if self.facts is None:
                return self.units  # no unit has ever been written
            self.units = TopicUnits()
            self._reader = CommittedReader(self._config, self._topics, self.name, 1)
        try:
            for message in self._reader.to_end(stable=stable):
                self._take_record(message.offset(), message.key(), message.value())
        except Exception:
            self.close()  # the next read starts at the beginning
            raise
        return self.units

    def _take_record(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            self.units.take_record(key, value)
        except (msgspec.DecodeError, ValueError) as error:
            raise TargetConfigError(
                f"topic {self.name} offset {offset}: this is not a record of rowlock ({error})",
                "find out what else writes there, and choose another `prefix` of the target",
            ) from error

    def build_records(self, unit: ApplyUnit, before: KnownUnit, after: KnownUnit) -> list[Outgoing]:
        """Return the records that turn `before` into `after`.

        Raises UnitStoppedError if the topic does not accept a record of that size.
        """
        records = [
            Outgoing(self.name, 0, key, value) for key, value in yield_progress_pairs(unit, before, after)
        ]
        for record in records:
            if self.facts is not None:
                check_size(record, self.facts)
        return records

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def measure_record(record: Outgoing) -> int:
    """Return the bytes of a record and of a batch that contains only it, at least as many as a broker
    counts.
    """
    size = OVERHEAD + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value) + 10 for name, value in record.headers)


def check_size(record: Outgoing, facts: TopicFacts) -> None:
    """Raise UnitStoppedError for a record that the topic would refuse: the refusal would cost a
    producer its transaction.
    """
    size = measure_record(record)
    if size > facts.limit:
        raise UnitStoppedError(
            f"topic {facts.name} of the target: a record of {size} bytes is above its "
            f"max.message.bytes of {facts.limit}",
            "raise it there, and in the "
            "consumers that read it, or leave the large column out of the route (`columns`)",
        )
