"""verify of topics on a broker: what is committed, to the end of now, while it is written; and one whole way
from a database."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import pytest

from consumer.ordering.model import EveryChange, TargetTable
from consumer.targets.batches import BatchCommitted
from consumer.targets.kafka.store.progress import KafkaProgress
from consumer.targets.kafka.store.state import UNKNOWN_UNIT
from consumer.targets.kafka.writer import Outgoing, UnitWriter
from deploy.embedded.services import Kafka
from rowlock.inspect.compare import Difference
from rowlock.inspect.verify import PairResult
from schemas.config.model import KafkaTargetConfig
from schemas.table.model import Key, Row
from tests.kits.kafka_target import UNIT, Owner, account, change, make_topic, table_of, target_config
from tests.kits.kafka_verify import Accounts, verify

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def config(kafka: Kafka, unique: str) -> KafkaTargetConfig:
    return target_config(kafka, unique)


def kinds(result: PairResult) -> list[tuple[Difference, Key, tuple[str, ...]]]:
    assert result.complete
    return sorted((each.kind, each.key, each.columns) for each in result.findings)


FORMATS = ["rowlock", "debezium", "debezium-schemas", "canal-json", "plain"]


@pytest.mark.parametrize("word", FORMATS)
def test_a_topic_of_several_partitions_is_compared_with_its_source(
    word: str, config: KafkaTargetConfig, unique: str
) -> None:
    owner = Owner(config, table_of(unique, format=word, partitions=3))
    rows = [account(key) for key in range(10)]
    owner.apply(1, *[(None, row) for row in rows])
    owner.apply(2, (rows[3], account(3, "zoe")), (rows[4], None))
    source = Accounts(*rows)
    source.rows[3] = account(3, "zoe")
    del source.rows[4]
    result = verify(source, config, format=word)
    assert (result.equal, result.rows, result.note) == (True, 9, "")
    source.rows[3], source.rows[40] = account(3, "ann"), account(40)
    del source.rows[5]
    assert kinds(verify(source, config, format=word)) == [
        (Difference.DIFFERENT, (3,), ("owner",)), (Difference.EXTRA, (5,), ()),
        (Difference.MISSING, (40,), ()),
    ]  # fmt: skip


def test_what_is_not_committed_is_not_there(config: KafkaTargetConfig, unique: str) -> None:
    owner = Owner(config, table_of(unique, format="plain"))
    owner.apply(1, (None, account(1)))
    (record,) = owner.target._tables.get_opened_topic(owner.table)[0].yield_records(
        EveryChange(owner.table, [change(2, None, account(2))]), None, ()
    )  # type: ignore[arg-type]
    with closing(_Open(config, record)):
        assert verify(Accounts(account(1)), config, format="plain").equal
        assert kinds(verify(Accounts(account(1), account(2)), config, format="plain")) == [
            (Difference.MISSING, (2,), ())
        ]
    assert verify(Accounts(account(1)), config, settle_s=30, format="plain").equal, "it never happened"


class _Open:
    """A transaction of somebody else's that stays open until it is closed: then it is taken back."""

    def __init__(self, config: KafkaTargetConfig, record: Outgoing) -> None:
        self._writer = UnitWriter(config, type(UNIT)("other", UNIT.topic), 1_000_000, lambda: UNKNOWN_UNIT)
        producer = self._writer._producer
        producer.begin_transaction()
        producer.produce(record.topic, record.value, record.key, record.partition)
        assert producer.flush(15) == 0

    def close(self) -> None:
        self._writer.discard()


def test_rows_under_way_arrive_while_it_waits(config: KafkaTargetConfig, unique: str) -> None:
    owner = Owner(config, table_of(unique, format="plain"))
    owner.apply(1, (None, account(1)))

    class Late(Accounts):
        looks = 0

        def fetch_keys(self, of: TargetTable, keys: Sequence[Key]) -> list[Row]:
            self.looks += 1
            if self.looks == 3:
                assert isinstance(owner.apply(2, (None, account(2))), BatchCommitted)
            return super().fetch_keys(of, keys)

    assert verify(Late(account(1), account(2)), config, settle_s=60, format="plain").equal


def test_a_missing_topic_and_one_that_somebody_else_writes_are_said(
    config: KafkaTargetConfig, unique: str, kafka: Kafka
) -> None:
    result = verify(Accounts(), config)
    assert (result.equal, result.problem) == (False, f"the target has no topic {unique}.acct")
    make_topic(kafka, f"{unique}.acct")
    assert verify(Accounts(), config).equal
    with closing(KafkaProgress(config)):
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce(f"{unique}.acct", b"hello", b"k")
        producer.flush(15)
    result = verify(Accounts(), config)
    assert (result.equal, "not a rowlock event" in result.problem) == (False, True)


def test_what_retention_has_deleted_is_missing_and_said(
    config: KafkaTargetConfig, unique: str, kafka: Kafka
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    owner = Owner(config, table_of(unique))
    owner.apply(1, (None, account(1)))
    owner.apply(2, (None, account(2)))
    place = TopicPartition(f"{unique}.acct", 0, 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([place])[place].result(60)
    result = verify(Accounts(account(1), account(2)), config)
    assert kinds(result) == [(Difference.MISSING, (1,), ())]
    assert "retention has deleted" in result.note
