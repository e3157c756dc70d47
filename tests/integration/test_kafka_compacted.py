"""Topics that Kafka's cleaner has really compacted: superseded records are removed, and so are those of
deleted rows, null values among them.

What is left is all that a reader, `verify`, a successor of the unit and the writer of a TRUNCATE have.
"""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from consumer.ordering.model import NetChange, QuarantineEntry
from consumer.targets.batches import BatchCommitted, BatchFenced, TableCleared
from deploy.embedded.services import Kafka
from schemas.config.model import KafkaTargetConfig
from schemas.table.model import Row
from tests.kits.kafka_target import UNIT, Owner, account, make_topic, messages, table_of, target_config
from tests.kits.kafka_verify import Accounts, verify
from tests.kits.waiting import until
from tests.topics.forms import FORMS, Image

pytestmark = pytest.mark.timeout(300)
EAGER = {
    "cleanup_policy": "compact",
    "segment_ms": "50",
    "min_cleanable_dirty_ratio": "0.01",
    "min_compaction_lag_ms": "0",
    "delete_retention_ms": "0",
}


@pytest.fixture
def config(kafka: Kafka, unique: str) -> KafkaTargetConfig:
    """The cleaner looks often, and both topics are cleaned as soon as a segment is full of 50 ms."""
    often = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[often])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([broker])[broker].result(60)
    for name in ("acct", "rowlock_progress"):
        make_topic(kafka, f"{unique}.{name}", 1, **EAGER)
    return target_config(kafka, unique)


def uncleaned(kafka: Kafka, topic: str, busy: bytes) -> set[bytes]:
    """The keys, but for the one that is written on and on, of which the topic still has an older record or a
    null value."""
    found = messages(kafka, topic, committed=False)
    times = Counter(each.key() for each in found)
    return {
        each.key() for each in found if each.key() != busy and (times[each.key()] > 1 or not each.value())
    }


class Story:
    """What an owner wrote, and the rows that result. A row is changed on and on, so that segments
    end."""

    def __init__(self, owner: Owner, kafka: Kafka, unique: str) -> None:
        self.owner, self._kafka, self._unique = owner, kafka, unique
        self.rows: dict[int, Row] = {}
        self.offset = 0

    def write(self, *rows: Row, missing: tuple[int, ...] = ()) -> None:
        self.offset += 1
        changes: list[tuple[Row | None, Row | None]] = [(self.rows.get(_id(row)), row) for row in rows]
        changes += [(self.rows.pop(key), None) for key in missing]
        assert self.owner.apply(self.offset, *changes) == BatchCommitted()
        self.rows |= {_id(row): row for row in rows}

    def cleaned(self) -> bool:
        """Change the busy row once more; tell whether the cleaner has been everywhere."""
        self.write(account(9, f"busy {self.offset}"))
        topics = {
            name: messages(self._kafka, f"{self._unique}.{name}") for name in ("acct", "rowlock_progress")
        }
        return not any(
            uncleaned(self._kafka, f"{self._unique}.{name}", each[-1].key()) for name, each in topics.items()
        )


def _id(row: Row) -> int:
    return int(str(row[0]))


def left(kafka: Kafka, topic: str, word: str) -> list[Image]:
    """What a reader has who keeps the last record of each key."""
    last = {each.key(): FORMS[word].reported(each.value()).after for each in messages(kafka, topic)}
    return [row for row in last.values() if row is not None]


@pytest.mark.parametrize("word", ["rowlock", "debezium-schemas", "canal-json", "plain"])
def test_what_the_cleaner_leaves_is_enough(
    word: str, kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    topic, table = f"{unique}.acct", table_of(unique, format=word)
    story = Story(Owner(config, table), kafka, unique)
    story.write(*(account(key) for key in range(10)))
    story.write(*(account(key, "zoe") for key in range(5)))
    story.write(missing=(5, 6))
    entries = [QuarantineEntry(offset, 0, "s.acct", "[1]", "1", "{}", "refused", 7) for offset in (4, 5)]
    story.owner.apply(story.offset, held=entries)
    story.owner.apply(story.offset, closed=[(4, 0)], why="by hand")
    until(story.cleaned, "the cleaner", 120)
    assert len(messages(kafka, topic, committed=False)) < 20, "the history is gone"
    expected = sorted((row[0], row[2]) for row in story.rows.values())
    assert sorted((int(row["id"]), row["owner"]) for row in left(kafka, topic, word)) == expected
    assert verify(Accounts(*story.rows.values()), config, format=word).equal
    successor = Owner(config, table)
    assert (successor.rows[0].offset, successor.held) == (story.offset, entries[1:])
    assert isinstance(story.owner.apply(99, (None, account(99))), BatchFenced)
    story.owner = successor
    pages = successor.target.yield_keys(UNIT, table, None)
    assert sorted(key for page in pages for key in page) == [(key,) for key in sorted(story.rows)]
    assert successor.apply(story.offset, NetChange(table, deletes=[(7,)])) == BatchCommitted()  # a copy's
    del story.rows[7]
    until(story.cleaned, "the cleaner", 120)
    assert verify(Accounts(*story.rows.values()), config, format=word).equal
    assert successor.apply(story.offset + 1, TableCleared(table, None)) == BatchCommitted()
    assert left(kafka, topic, word) == []
    assert verify(Accounts(), config, format=word).equal
