"""Whole attempts into a topic of a broker, where it is more than a table or less; what it has in common with
tables: test_kafka_shared.py."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace as other

from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import TopicOptions
from consumer.tables.router import TableRoute
from consumer.targets.kafka import records
from consumer.targets.kafka.store.state import KnownUnit
from consumer.targets.kafka.writer import Outgoing, UnitWriter
from rowlock.inspect.quarantine import EntrySelection, list_quarantined_events, resolve_quarantine
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table
from schemas.wire.event import ColumnChanges
from tests.kits.apply import FakeSource
from tests.kits.attempts import RealUnit, config_of, rows_of
from tests.kits.copy import CopyOf
from tests.kits.kafka_attempts import clusters, kept, remove_topic, unit_of
from tests.kits.kafka_target import documents, make_topic, messages
from tests.kits.waiting import until
from tests.stands.kafka_target import Cluster
from tests.topics.forms import FORMS

real = clusters()
pytestmark = pytest.mark.timeout(240)


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


class _KilledError(BaseException):
    """The worker is gone."""


ROW_BY_ROW = ["plain", "rowlock", "debezium-schemas", "canal-json"]


@pytest.mark.parametrize("way", ["killed", "paused"])
@pytest.mark.parametrize("at", [1, 2, 4])
@pytest.mark.parametrize("form", ROW_BY_ROW)
def test_a_table_that_is_emptied_row_by_row_goes_in_pages_whoever_takes_it_over(
    form: str, at: int, way: str, real: Cluster, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction has all of its rows. In the middle of it the worker dies, or another one has the unit
    when it comes back: each row is deleted once."""
    monkeypatch.setattr(records, "CLEARED", 3)
    topic = f"{unique}.acct"
    make_topic(real.kafka, topic, 2, **({} if form == "plain" else {"cleanup_policy": "compact"}))
    unit = unit_of(real, topic={"format": form})
    source = unit.source
    unit.write([source.put(source.row(key, None, 1)) for key in range(10)])
    assert unit.apply().state == "ok"
    unit.write([source.truncate(), source.put(source.row(4, None, 2))])
    worker, commits, sizes = real.get_connection(0), [0], list[int]()

    def paused() -> None:
        commits[0] += 1
        if commits[0] == at:
            unit.take_over()
            if way == "killed":
                raise _KilledError

    write = UnitWriter.commit_records

    def sized(self: UnitWriter, all_of: Sequence[Outgoing], after: KnownUnit) -> None:
        sizes.append(sum(each.topic == topic and each.value is None for each in all_of))
        write(self, all_of, after)

    worker.paused = paused
    monkeypatch.setattr(UnitWriter, "commit_records", sized)
    if way == "killed":
        with pytest.raises(_KilledError):
            unit.apply(11)
    else:
        assert unit.apply(11).state == "fenced"
    real.drop_connection(0)
    report = unit.apply(11)
    assert report.state == "ok", report
    assert max(sizes) == 3
    found = [(each.key(), FORMS[form].reported(each.value())) for each in messages(real.kafka, topic)]
    rows = [(int(FORMS[form].encode_key(key)["id"]), reported) for key, reported in found if key is not None]
    missing = Counter(key for key, reported in rows if reported.kind == "-")
    assert missing == dict.fromkeys(range(10), 1), "each once"
    assert [int(reported.after["version"]) for key, reported in rows if key == 4 and reported.after] == [1, 2]
    assert [reported.kind for key, reported in rows if key == 7][1:] == (
        ["-"] if form == "plain" else ["d", "-"]
    )
    (row,), _ = real.session.read_progress(unit.unit)
    assert row.offset == 12


def test_a_route_chooses_rows_columns_and_what_is_hidden(real: Cluster) -> None:
    shape = {
        "columns": ("id", "owner", "version"),
        "where": (("version", ("1",)),),
        "masks": (("owner", "***"),),
    }
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


def test_a_definition_that_gives_rows_other_keys_stops_the_unit(real: Cluster) -> None:
    """A wider note changes nothing of them; an id with digits after its point is another text."""
    unit = unit_of(real)
    source = unit.source
    unit.write([source.put(source.row(1, None, 1))])
    source.table = of_type(source, "note", ColumnType(kind=Kind.VARCHAR, length=900, charset="utf8mb4"))
    unit.write([kept(source, "ALTER TABLE acct MODIFY note VARCHAR(900)", source.table)])
    report = unit.apply()
    assert report.state == "ok", report
    before = messages(real.kafka, f"{real.schema}.acct")
    row = {**source.row(1, None, 2), "id": "1.00"}
    expected = of_type(source, "id", ColumnType(kind=Kind.DECIMAL, precision=22, scale=2))
    unit.write([kept(source, "ALTER TABLE acct MODIFY id DECIMAL(22,2)", expected)])
    unit.write([source.event("u", {**source.rows[1], "id": "1.00"}, row)])
    report = unit.apply()
    assert report.state == "stopped"
    assert (
        "key column id was written as number, now as decimal with 2 digits after the point" in report.message
    )
    assert "start over" in report.message
    assert len(messages(real.kafka, f"{real.schema}.acct")) == len(before)


def of_type(source: FakeSource, name: str, type_: ColumnType) -> Table:
    columns = source.table.columns
    return other(
        source.table,
        columns=tuple(other(each, type=type_) if each.name == name else each for each in columns),
    )


def altered(source: FakeSource, column: Column) -> Any:
    from msgspec.structs import replace as other

    return other(source.table, columns=(*source.table.columns, column))


@pytest.mark.parametrize("again", [True, False])
def test_a_topic_that_was_deleted_stops_its_unit_at_its_start_and_a_copy_heals_it(
    again: bool, real: Cluster
) -> None:
    """Nothing has to come from the source for that. The copy writes into the topic that was made again, or
    makes one."""
    unit = unit_of(real)
    source = unit.source
    unit.write([source.put(source.row(key, None, 1)) for key in (1, 2)])
    assert unit.apply().state == "ok"
    remove_topic(real.kafka, f"{real.schema}.acct")
    if again:
        make_topic(real.kafka, f"{real.schema}.acct", 2)
        until(lambda: real.session._topics.find_topic_identity(f"{real.schema}.acct"), "the topic is shown")
    unit.write([source.put(source.row(3, None, 1))])
    for _ in range(2):
        unit.take_over()
        report = unit.apply()
        assert report.state == "stopped"
        assert (
            "was deleted and created again" if again else "was deleted, and its records are lost"
        ) in report.message
        assert "then rowlock copy bank.acct" in report.message
    begin = len(unit.topic)
    CopyOf(source, unit.topic).all()
    unit.spec["copy_at"] = begin  # as the driver knows it from capture
    unit.take_over()
    report = unit.apply()
    assert report.state == "ok", report
    assert unit.rows() == rows_of(source)
    unit.write([source.put(source.row(4, None, 1))])
    assert unit.apply().state == "ok", "it goes on"
    assert unit.rows() == rows_of(source)


def test_a_worker_that_dies_and_one_that_comes_back_leave_every_event_once(real: Cluster) -> None:
    unit = unit_of(real)
    source, rng = unit.source, random.Random(5)
    for start in (0, 50, 90):
        unit.write(source.history(rng, 60, keys=20))
        unit.take_over()
        real.drop_connection(0)
        zombie = real.open()
        assert unit.apply(start).state == "ok"
        zombie.close()
    assert unit.rows() == rows_of(source)
    positions = [
        v["source"]["position"]
        for _, v in documents(messages(real.kafka, f"{real.schema}.acct"))
        if v and v["op"] in "cur"
    ]
    assert len({tuple(each) for each in positions}) == len(positions), "no event twice"


def test_a_record_above_the_limit_stops_its_table(real: Cluster) -> None:
    make_topic(real.kafka, f"{real.schema}.acct", max_message_bytes="9000")
    unit = unit_of(real)
    source = unit.source
    unit.write([source.put(source.row(1, None, 1)), source.put(source.row(2, None, 1, note="x" * 9000))])
    report = unit.apply()
    assert report.state == "stopped"
    assert "max.message.bytes of 9000" in report.message
    _, state = real.session.read_progress(unit.unit)
    assert state is not None
    assert "max.message.bytes of 9000" in str(state.stopped)


def test_what_the_topic_cannot_be_stops_the_unit_at_its_definition(real: Cluster) -> None:
    make_topic(real.kafka, f"{real.schema}.acct", 3)
    unit = unit_of(real, topic={"partitions": 2})
    unit.write([unit.source.put(unit.source.row(1, None, 1))])
    report = unit.apply()
    assert (report.state, "has 3 partitions, but its route sets 2" in report.message) == ("stopped", True)
    assert messages(real.kafka, f"{real.schema}.acct") == []


def held_keys(config: Any) -> list[str]:
    return sorted(entry.held.key for entry in list_quarantined_events(config))


def test_of_two_with_other_keys_that_begin_at_once_one_waits_until_the_other_s_key_is_known(
    real: Cluster,
) -> None:
    """Their keys are never equal, but neither knows the other's yet. A unit that waits is tried again by
    itself (consumer/units/transitions.py)."""
    options = TopicOptions(kinds=(("north", "mariadb"), ("south", "mariadb")))
    route = TableRoute("bank.*", f"{real.schema}.acct", topic=options)
    table = FakeSource().table
    longer = other(table, key=other(table.key, parts=(*table.key.parts, IndexPart(column="version"))))
    north, south = (
        RealUnit(
            real, FakeSource(name=name, table=each), route, limits=LaneLimits(pause=0.01),  # type: ignore[arg-type]
            table_of=lambda _source, _topic: ("bank", "acct"),
        )
        for name, each in (("north", table), ("south", longer))
    )  # fmt: skip
    for unit in (north, south):
        unit.write([unit.source.put(unit.source.row(1, None, 1))])
    report = north.apply()
    assert report.state == "stopped"
    assert "with equal keys would have the same key in the topic" in report.message
    assert south.apply().state == "ok", "it does not wait for one that is stopped"
    north.take_over()
    assert north.apply().state == "ok"
    for unit in (north, south):
        unit.write([unit.source.put(unit.source.row(2, None, 1))])
        unit.take_over()
        assert unit.apply().state == "ok", "and so it stays"
    assert real.ops() == "mcmccc"


def test_the_quarantine_is_retried_into_the_topic_and_given_up(real: Cluster) -> None:
    """The last image of a key is written, under a key that a reader finds; what waited is in the history with
    who ended that."""
    source = FakeSource(name="north")
    unit = RealUnit(
        real, source, TableRoute("bank.*", f"{real.schema}.{{table}}"), limits=LaneLimits(pause=0.01)
    )  # type: ignore[arg-type]
    unit.write([source.put(source.row(key, None, 1)) for key in (1, 2)])
    assert unit.apply().state == "ok"
    real.narrow("acct", "owner", 20)
    one, two = ({**source.rows[key], "owner": "x" * 30} for key in (1, 2))
    unit.write([source.put(one), source.put(two), source.put({**one, "owner": "mended"})])
    assert unit.apply(3).held == 3
    config = config_of(real)  # type: ignore[arg-type]
    retried = resolve_quarantine(config, "retry", EntrySelection(key="[2]"))
    assert (retried.complete, held_keys(config)) == (False, ["[1]", "[1]", "[2]"]), "it is as bad as before"
    retried = resolve_quarantine(config, "retry", EntrySelection(key="[1]"))
    assert (retried.complete, len(retried.lines)) == (True, 1), retried
    assert resolve_quarantine(config, "skip", EntrySelection()).complete
    assert [(offset, why) for _, offset, why in real.closed()] == [
        (3, "by rowlock quarantine retry"),
        (5, "by rowlock quarantine retry"),
        (4, "by rowlock quarantine skip"),
    ]
    assert sorted((row[0], row[2]) for row in unit.rows()) == [(1, "mended"), (2, "owner 2")]
    unit.take_over()
    unit.write([source.put(source.row(2, None, 3))])
    assert unit.apply(6).held == 1, "its image before is what was given up"
    assert resolve_quarantine(config, "retry", EntrySelection()).complete
    assert [row[4] for row in unit.rows() if row[0] == 2] == [3]


def test_of_a_refused_key_move_the_delete_is_a_record_and_a_held_key_waits(real: Cluster) -> None:
    """The row at the old key was a record, so its delete is one. The delete of a held key waits for a retry:
    its image was never a record."""
    source = FakeSource(name="north")
    unit = RealUnit(
        real, source, TableRoute("bank.*", f"{real.schema}.{{table}}"), limits=LaneLimits(pause=0.01)
    )  # type: ignore[arg-type]
    unit.write([source.put(source.row(key, None, 1)) for key in (1, 2)])
    assert unit.apply().state == "ok"
    real.narrow("acct", "owner", 20)
    unit.write([source.move(1, {**source.row(3, None, 2), "owner": "x" * 30})])
    unit.write([source.put({**source.row(2, None, 2), "owner": "y" * 30}), source.delete(2)])
    report = unit.apply(3)
    assert (report.state, report.held, real.ops()) == ("ok", 3, "mccd-")
    assert [row[0] for row in unit.rows()] == [2]
    assert held_keys(config_of(real)) == ["[2]", "[2]", "[3]"]  # type: ignore[arg-type]
    retried = resolve_quarantine(config_of(real), "retry", EntrySelection(key="[2]"))  # type: ignore[arg-type]
    assert (retried.complete, real.ops()) == (True, "mccd-d-")
    assert unit.rows() == []
