"""What tests of a Kafka target share: tables that are written as events, targets of one unit, and a reader of
what is committed."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from consumer.errors import TransientError
from consumer.ordering.model import ApplyUnit, EveryChange, LaneProgress, RowChange, TargetTable, TopicOptions
from consumer.tables.router import ResolvedRoute, build_desired_table, build_topic_table
from consumer.targets.batches import BatchCommitted, BatchFenced, ProgressChange, RowsChange
from consumer.targets.kafka.target import KafkaTarget
from deploy.embedded.services import Kafka
from schemas.config.model import KafkaTargetConfig
from schemas.table.model import Row
from tests.kits.apply import account_table
from tests.kits.waiting import until

UNIT = ApplyUnit("out", "src.b1.bank.acct")


def target_config(kafka: Any, prefix: str) -> KafkaTargetConfig:
    return KafkaTargetConfig.model_construct(
        **{name: each.default for name, each in KafkaTargetConfig.model_fields.items()}
        | {"type": "kafka", "bootstrap": kafka.bootstrap, "prefix": prefix, "options": {}, "replication": 1}
    )


def table_of(prefix: str, added: tuple[tuple[str, str], ...] = (), **options: Any) -> TargetTable:
    """The table of accounts (tests.kits.apply), in a topic of this prefix."""
    source = account_table()
    routed = ResolvedRoute(prefix, "acct", added, topic=TopicOptions(kinds=(("b1", "mariadb"),), **options))
    return build_topic_table(build_desired_table(source, routed), routed, "b1", source)


def account(key: int, owner: str = "ann", note: str | None = None) -> Row:
    return (key, None, owner, "1.50", 1, "2026-11-21 10:00:00.000001", note)


def change(offset: int, before: Row | None, after: Row | None) -> RowChange:
    return RowChange((offset, 0), before, after, (0, 1, offset * 10, 0), 1, 1_000 + offset)


class Owner:
    """One who has the unit, with a target of his own. `rows`: the progress as he knows it."""

    def __init__(self, config: KafkaTargetConfig, table: TargetTable, assigned: int | None = None) -> None:
        self.target, self.table = KafkaTarget(config), table
        weakref.finalize(self, self.target.close)  # Python 3.13 warns of an open database
        self.target.ensure_bookkeeping()
        self.epoch, _, self.state = until(lambda: self._take_over(assigned), "the unit is taken over", 60)
        self.rows, _, self.held = self.target.begin_attempt(UNIT, self.epoch)
        self.target.open_topic(table, create=True)

    def _take_over(self, assigned: int | None) -> Any:
        """Take the unit over; None: a broker does not lead the partition of a new topic yet, and the product
        would try again."""
        try:
            return self.target.take_over(UNIT, "id", "{}", 1, assigned=assigned)
        except TransientError as error:
            if "NOT_LEADER" not in str(error):
                raise
            return None

    def progress(self, offset: int, **more: Any) -> ProgressChange:
        return ProgressChange(list(self.rows), [moved(row, offset) for row in self.rows], **more)

    def apply(
        self, offset: int, *changes: RowsChange | tuple[Row | None, Row | None], **more: Any
    ) -> BatchCommitted | BatchFenced:
        """Commit changes, rows as (before, after), and go to `offset`."""
        progress = self.progress(offset, **more)
        outcome = self.target.apply_changes(UNIT, [self._change(offset, each) for each in changes], progress)
        if isinstance(outcome, BatchCommitted):
            self.rows = list(progress.rows)
        return outcome

    def _change(self, offset: int, each: RowsChange | tuple[Row | None, Row | None]) -> RowsChange:
        return EveryChange(self.table, [change(offset, *each)]) if isinstance(each, tuple) else each


def moved(row: LaneProgress, offset: int) -> LaneProgress:
    return LaneProgress(
        row.lane, row.epoch, row.attempt, row.topic_id, offset, (0, 1, offset * 10, 0), 1, row.layout, 1_000
    )


def messages(kafka: Kafka, topic: str, *, committed: bool = True) -> list[Any]:
    """All messages of a topic to the end of now, those that are committed or all of them; partition by
    partition."""
    level = "read_committed" if committed else "read_uncommitted"
    settings: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": "judge",
        "enable.partition.eof": True,
    }
    settings |= {"isolation.level": level, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    found: list[Any] = []
    with closing(Consumer(settings)) as consumer:
        partitions = consumer.list_topics(topic, 15).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        left = set(partitions)
        while left:
            message: Any = consumer.poll(15)
            assert message is not None, f"no end of {topic}"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left.discard(message.partition())
    return sorted(found, key=lambda each: (each.partition(), each.offset()))


def documents(found: Sequence[Any]) -> list[tuple[Any, Any]]:
    """(key, value) of messages as JSON documents."""
    parse: Callable[[bytes | None], Any] = lambda raw: None if raw is None else json.loads(raw)  # noqa: E731
    return [(parse(each.key()), parse(each.value())) for each in found]


def make_topic(kafka: Kafka, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(60)
