"""Whole attempts into a topic of a broker: the machine that applies to databases passes what of their tests a topic can mean.

What a topic holds is what its last record of each key says: judged by a consumer of its own, and compared with the source.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.reader import Slice
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec
from consumer.ordering.lanes import LaneLimits
from consumer.ordering.model import ApplyUnit, TargetTable, TopicOptions
from consumer.tables.definition import InForce
from consumer.tables.router import TableRoute
from consumer.targets.kafka.target import KafkaTarget
from deploy.embedded.services import Kafka
from schemas.config.model import KafkaTargetConfig
from schemas.table.model import Column, ColumnType, Kind, Row
from schemas.wire.event import ColumnChanges
from tests.apply_kit import FakeSource
from tests.integration import test_apply_targets, test_targets_session
from tests.integration.test_apply_targets import RealUnit, rows_of
from tests.kafka_target_kit import documents, make_topic, messages, target_config

pytestmark = pytest.mark.timeout(240)
#: The tests of sessions that say something of a topic, too. What is left out is about locks, lanes, unique indexes, displaced rows, values
#: that a table cannot hold, or SQL.
SHARED = (
    test_apply_targets.test_histories_and_replays_end_as_the_source,
    test_apply_targets.test_an_old_epoch_cannot_write,
    test_targets_session.test_take_over_makes_the_rows_and_raises_the_epoch,
    test_targets_session.test_an_assignment_is_fenced_by_a_later_one_alone,
    test_targets_session.test_begin_raises_the_attempt_and_refuses_any_other_epoch,
    test_targets_session.test_two_take_overs_at_once_get_two_epochs,
)
globals().update({test.__name__: test for test in SHARED})


class Cluster:
    """What tests.integration.test_apply_targets.Real is for databases; and `Connections` to it."""

    lanes = 1

    def __init__(self, config: KafkaTargetConfig, kafka: Kafka) -> None:
        self.schema, self.config, self.kafka = config.prefix, config, kafka
        self.session = self.open()
        self.worker: KafkaTarget | None = None
        self.tables: dict[tuple[str, int], InForce] = {}

    def open(self) -> KafkaTarget:
        made = KafkaTarget(self.config, lambda: 0)
        made.ensure_bookkeeping()
        return made

    def get(self, _number: int) -> KafkaTarget:
        """The worker's own, as it is another process than who takes over."""
        if self.worker is None:
            self.worker = self.open()
        return self.worker

    def check(self, number: int) -> None: ...

    def drop(self, _number: int) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.close()

    def displaced(self) -> int:
        return 0

    def apply(
        self, spec: UnitSpec, slices: Iterable[Slice], read_missing: Callable[[int, int], list[Slice]]
    ) -> Report:
        options = TopicOptions(kinds=(("branch1", "mariadb"),))
        routes = tuple(replace(each, topic=each.topic or options) for each in spec.routes)
        spec = replace(spec, batches=True, routes=routes)
        return apply_topic(spec, self, slices, read_missing=read_missing, tables=self.tables)

    def rows(self, unit: ApplyUnit, table: TargetTable) -> list[Row]:
        """What a reader of committed records has, who keeps the last one of each key."""
        rows: dict[tuple[int, bytes | None], Row] = {}
        for message, (_, value) in zip(
            found := messages(self.kafka, f"{self.schema}.acct"), documents(found), strict=True
        ):
            at = message.partition(), message.key()
            if value is None or value["op"] == "d":
                rows.pop(at, None)
            elif value["op"] == "t":
                rows.clear()
            elif value["op"] != "m":
                rows[at] = tuple(value["after"].values())
        return list(rows.values())

    def ops(self) -> str:
        """The operations of the records, in order; a tombstone is `-`."""
        found = documents(messages(self.kafka, f"{self.schema}.acct"))
        return "".join("-" if value is None else value["op"] for _, value in found)

    def close(self) -> None:
        self.drop(0)
        self.session.close()


@pytest.fixture
def real(kafka: Kafka, unique: str) -> Iterator[Cluster]:
    with closing(Cluster(target_config(kafka, unique), kafka)) as made:
        yield made


@pytest.fixture
def target(real: Cluster) -> Cluster:
    return real


def unit_of(real: Cluster, *, topic: dict[str, Any] | None = None, **add: str) -> RealUnit:
    options = TopicOptions(kinds=(("branch1", "mariadb"),), **(topic or {}))
    route = TableRoute("bank.*", f"{real.schema}.{{table}}", tuple(add.items()), topic=options)
    return RealUnit(real, FakeSource(), route, limits=LaneLimits(pause=0.01))  # type: ignore[arg-type]


def test_every_change_is_a_record_once_in_order_with_the_definition_first(real: Cluster) -> None:
    unit = unit_of(real)
    source = unit.source
    ann = source.row(1, None, 1)
    unit.write([source.put(source.row(2, None, 1), "r"), source.put(ann), source.put({**ann, "note": "x"})])
    unit.write([source.put({**ann, "note": "y"}), source.move(1, source.row(3, None, 1)), source.delete(2)])
    assert unit.apply().state == "ok"
    assert unit.apply().state == "ok", "read again"
    assert real.ops() == "mrcuud-cd-"
    found = [value for _, value in documents(messages(real.kafka, f"{real.schema}.acct")) if value]
    update = next(value for value in found if value["op"] == "u")
    assert (update["before"], update["after"]) == (ann, {**ann, "note": "x"}), "the image before is whole"
    assert {value["source"]["connector"] for value in found} == {"mariadb"}
    assert [value["source"]["position"] for value in found] == sorted(v["source"]["position"] for v in found)


def test_a_truncate_and_added_columns(real: Cluster) -> None:
    unit = unit_of(real, branch="{source}")
    source = unit.source
    unit.write([source.put(source.row(1, None, 1)), source.truncate(), source.put(source.row(2, None, 1))])
    assert unit.apply().state == "ok"
    assert real.ops() == "mctc"
    assert unit.rows() == rows_of(source, "branch1")


def test_a_route_chooses_rows_columns_and_what_is_hidden(real: Cluster) -> None:
    shape = {"columns": ("id", "owner", "version"), "where": (("version", ("1",)),), "masks": (("owner", "***"),)}  # fmt: skip
    unit = unit_of(real, topic=shape)
    source = unit.source
    unit.write([source.put(source.row(key, None, key)) for key in (1, 2)])
    unit.write([source.put(source.row(1, None, 5)), source.put(source.row(2, None, 1))])
    assert unit.apply().state == "ok"
    assert real.ops() == "mcd-c"
    assert unit.rows() == [(2, "***", 1)]


def test_a_definition_that_changes_is_told_and_the_target_is_not_altered(real: Cluster) -> None:
    unit = unit_of(real)
    source = unit.source
    unit.write([source.put(source.row(1, None, 1))])
    column = Column(name="town", type=ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4"))
    wider = altered(source, column)
    event = source.event(
        "m",
        definition=wider,
        ddl="ALTER TABLE acct ADD town VARCHAR(9)",
        columns=ColumnChanges(added=("town",)),
        effect="kept",
    )
    source.table = wider
    unit.write([event, source.put({**source.row(2, None, 1), "town": "Ulm"})])
    report = unit.apply()
    assert report.state == "ok", report
    assert real.ops() == "mcmc"
    assert [row[-1] for row in unit.rows() if row[0] == 2] == ["Ulm"]


def altered(source: FakeSource, column: Column) -> Any:
    from msgspec.structs import replace as other

    return other(source.table, columns=(*source.table.columns, column))


def test_a_worker_that_dies_and_one_that_comes_back_leave_every_event_once(real: Cluster) -> None:
    unit = unit_of(real)
    source, rng = unit.source, random.Random(5)
    for start in (0, 50, 90):
        unit.write(source.history(rng, 60, keys=20))
        unit.take_over()
        real.drop(0)
        zombie = real.open()
        assert unit.apply(start).state == "ok"
        zombie.close()
    assert unit.rows() == rows_of(source)
    positions = [v["source"]["position"] for _, v in documents(messages(real.kafka, f"{real.schema}.acct")) if v and v["op"] in "cur"]  # fmt: skip
    assert len({tuple(each) for each in positions}) == len(positions), "no event twice"


def test_a_record_above_the_limit_stops_its_table(real: Cluster) -> None:
    make_topic(real.kafka, f"{real.schema}.acct", max_message_bytes="9000")
    unit = unit_of(real)
    source = unit.source
    unit.write([source.put(source.row(1, None, 1)), source.put(source.row(2, None, 1, note="x" * 9000))])
    report = unit.apply()
    assert report.state == "stopped"
    assert "max.message.bytes of 9000" in report.message
    _, state = real.session.read(unit.unit)
    assert state is not None
    assert "max.message.bytes of 9000" in str(state.stopped)


def test_what_the_topic_cannot_be_stops_the_unit_at_its_definition(real: Cluster) -> None:
    make_topic(real.kafka, f"{real.schema}.acct", 3)
    unit = unit_of(real, topic={"partitions": 2})
    unit.write([unit.source.put(unit.source.row(1, None, 1))])
    report = unit.apply()
    assert (report.state, "has 3 partitions, and its route says 2" in report.message) == ("stopped", True)
    assert messages(real.kafka, f"{real.schema}.acct") == []
