"""A topic that Debezium writes, in attempts: duplicates, snapshots, moved keys, TRUNCATE, and what stops
it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace as changed

from consumer.attempt.drivers.run import define_topic
from consumer.attempt.readers import debezium
from consumer.errors import RefusedError
from consumer.tables.router import TableRoute
from schemas.table.model import Column, ColumnType, Kind
from tests.kits.debezium import Connector, Values
from tests.kits.debezium_unit import TABLE, Bench, of, row


@pytest.mark.parametrize("schemas", [True, False])
def test_changes_become_rows(schemas: bool) -> None:
    bench = Bench(schemas=schemas)
    debezium = bench.connector
    debezium.snapshot(row(1, "a"), row(2, "b"))
    debezium.insert(row(3, "c"), row(4))
    debezium.update(row(1, "a"), row(1, "z", 2))
    debezium.delete(row(2, "b"))
    report = bench.apply()
    assert (report.state, report.applied, report.dropped) == ("ok", 6, 0)
    assert bench.list_copies() == of(row(1, "z", 2), row(3, "c"), row(4))
    assert bench.offsets() == {len(bench.topic) - 1}, "tombstones are passed"


def test_a_key_that_moves_is_not_dropped_as_a_duplicate() -> None:
    """Its delete and its insert come from the same row of the log, with the same file, pos and row."""
    bench = Bench()
    bench.connector.insert(row(1, "a"))
    bench.connector.update(row(1, "a"), row(9, "a"))
    bench.connector.again(0)
    report = bench.apply()
    assert (report.applied, report.dropped) == (3, 3)
    assert bench.list_copies() == of(row(9, "a"))


def test_a_repeated_stretch_is_dropped_also_by_another_attempt() -> None:
    bench = Bench()
    debezium = bench.connector
    debezium.insert(row(1), row(2))
    debezium.update(row(1), row(1, version=2))
    debezium.delete(row(2))
    debezium.again(1)
    assert (bench.apply(upto=5).dropped, bench.list_copies()) == (0, of(row(1, version=2)))
    bench.take_over()
    report = bench.apply(5)
    assert (report.state, report.applied, report.dropped) == ("ok", 0, 3)
    assert bench.list_copies() == of(row(1, version=2))


def test_a_restart_in_the_middle_of_a_snapshot_goes_on_by_offset() -> None:
    bench = Bench()
    bench.connector.snapshot(*(row(key) for key in range(20)))
    bench.connector.update(row(3), row(3, version=2))
    assert bench.apply(upto=8).applied == 8
    bench.take_over()
    report = bench.apply(0)  # Spark's batch begins before the progress
    assert (report.state, report.applied) == ("ok", 13)
    assert len(bench.list_copies()) == 20


def test_a_snapshot_behind_the_log_is_applied_and_takes_no_position_back() -> None:
    """An incremental snapshot, or a new one of a connector that lost its offsets."""
    bench = Bench()
    debezium = bench.connector
    debezium.insert(row(1), row(2))
    stretch = len(bench.topic)
    debezium.snapshot(row(1, version=5), row(7))
    debezium.again(0, stretch)
    debezium.update(row(7), row(7, version=2))
    report = bench.apply()
    assert (report.state, report.dropped) == ("ok", 2)
    assert bench.list_copies() == of(row(1, version=5), row(2), row(7, version=2))


def test_rows_of_a_snapshot_that_was_asked_for_are_written_in_place_and_free_their_keys() -> None:
    """A snapshot that a person asked Debezium for mends the table: also a row that the target refused, and
    the changes that are queued because of it."""
    bench = Bench()
    debezium = bench.connector
    bench.target.refuse = lambda values: RefusedError("no") if values[1] == "poison" else None
    debezium.insert(row(1, "poison"), row(2, "b"), row(3, "poison"))
    debezium.update(row(1, "poison"), row(1, "poison", 2))
    assert bench.apply().held == 3
    bench.target.nets.clear()
    start = len(bench.topic)
    debezium.snapshot(row(1, "mended", 3), row(2, "b", 4))
    debezium.update(row(2, "b", 4), row(2, "b", 5))
    report = bench.apply(start)
    assert (report.state, report.held) == ("ok", 0)
    assert bench.list_copies() == of(row(1, "mended", 3), row(2, "b", 5))
    assert [entry.key for entry in bench.target.state.held.values()] == ["[3]"], "its row was not read again"
    read = [values for net in bench.target.nets for values in net.snapshot]
    assert {values[0] for values in read} == {1, 2}, "nothing else of the target's rows is lost"
    assert not any(net.replaces or net.deletes for net in bench.target.nets)


def test_commit_times_are_those_of_the_log() -> None:
    """A snapshot row's time is when it was read: far behind it the log may still tell of what was before."""
    bench = Bench()
    bench.connector.snapshot(row(1), row(2))
    assert bench.apply().commit_ts_ms == 0
    bench.connector.insert(row(3))
    assert bench.apply(2).commit_ts_ms == bench.connector.ts_ms
    bench.connector.ts_ms -= 600_000  # a transaction that began long ago: the log goes by commits
    bench.connector.insert(row(4))
    assert bench.apply(3).commit_ts_ms == bench.connector.ts_ms + 599_000


def test_an_event_that_comes_again_may_be_later_than_the_last_one() -> None:
    """Rows carry the time of their statement: a transaction that took long comes after others with later
    times."""
    bench = Bench(lanes=1)
    bench.connector.insert(row(1))
    bench.connector.ts_ms -= 600_000
    bench.connector.insert(row(2))
    assert bench.apply().state == "ok"
    bench.take_over()
    bench.connector.again(0)
    report = bench.apply(2)
    assert (report.state, report.dropped) == ("ok", 2)


def test_truncate_empties_the_table() -> None:
    bench = Bench()
    bench.connector.insert(row(1), row(2))
    bench.connector.truncate()
    bench.connector.insert(row(3))
    bench.connector.again(0)
    report = bench.apply()
    assert (report.state, report.applied, report.dropped) == ("ok", 4, 4)
    assert bench.list_copies() == of(row(3))


def test_added_columns_are_added() -> None:
    bench = Bench(routes=(TableRoute("bank.*", "public.{table}", (("branch", "{source}"),)),))
    bench.connector.insert(row(1))
    assert bench.apply().state == "ok"
    assert bench.list_copies() == [(*row(1).values(), "b1")]


def test_a_refused_row_is_held_as_it_came() -> None:
    bench = Bench()
    bench.target.refuse = lambda values: RefusedError("no") if values[0] == 2 else None
    bench.connector.insert(row(1), row(2), row(3))
    report = bench.apply()
    assert (report.state, report.held) == ("ok", 1)
    (held,) = bench.target.state.held.values()
    assert held.event.encode() == bench.topic[1]
    assert bench.list_copies() == of(row(1), row(3))


class TestWhatStops:
    def stopped(self, bench: Bench, *kept: Values) -> str:
        report = bench.apply()
        assert report.state == "stopped"
        assert bench.target.state.unit.stopped == report.message
        assert bench.list_copies() == of(*kept), "what came before is applied"
        return report.message

    def test_a_column_that_the_definition_lacks(self) -> None:
        bench = Bench()
        bench.connector.insert(row(1))
        more = Column(name="extra", type=ColumnType(kind=Kind.INT, bits=32))
        bench.connector.table = changed(TABLE, columns=(*TABLE.columns, more))
        bench.connector.insert({**row(2), "extra": 1})
        assert "t offset 1: Debezium's event has a column extra" in self.stopped(bench, row(1))

    def test_a_column_that_was_altered_where_the_schema_tells(self) -> None:
        bench = Bench(schemas=True)
        bench.connector.insert(row(1))
        wider = tuple(
            changed(each, type=changed(each.type, scale=3)) if each.name == "balance" else each
            for each in TABLE.columns
        )
        bench.connector.table = changed(TABLE, columns=wider)
        bench.connector.insert(row(2))
        assert "column balance: Debezium's schema" in self.stopped(bench, row(1))

    def test_another_table(self) -> None:
        bench = Bench()
        bench.connector.table = changed(TABLE, name="other")
        bench.connector.insert(row(1))
        assert "the topic of bank.acct has an event of bank.other" in self.stopped(bench)

    def test_a_flattened_event(self) -> None:
        bench = Bench()
        bench.topic.append(json.dumps(dict(row(1))).encode())
        assert "ExtractNewRecordState" in self.stopped(bench)

    def test_a_log_that_began_anew(self) -> None:
        """Everything in it would be dropped as a duplicate, and nobody would know."""
        bench = Bench()
        bench.connector.insert(row(1))
        assert bench.apply().state == "ok"
        bench.take_over()
        bench.connector.file, bench.connector.at = "binlog.000001", 4
        bench.connector.ts_ms += 60_000
        bench.connector.insert(row(2))
        assert "the source's log was reset" in self.stopped(bench, row(1))

    def test_rows_of_a_compressed_transaction(self) -> None:
        """Its events all have the position of the one that holds them."""
        bench = Bench()
        bench.connector.insert(row(1), row(2))
        bench.connector.at -= 50
        bench.connector.insert(row(3))
        assert "binlog_transaction_compression" in self.stopped(bench, row(1), row(2))

    def test_rows_of_a_compressed_transaction_behind_many_others(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only the last log event's rows are remembered, so that there is always room for them."""
        monkeypatch.setattr(debezium, "MAX_REMEMBERED", 1)
        bench = Bench()
        bench.connector.insert(row(1))
        bench.connector.insert(row(2))
        bench.connector.at -= 50
        bench.connector.insert(row(3))
        assert "binlog_transaction_compression" in self.stopped(bench, row(1), row(2))

    def test_a_topic_that_rowlock_wrote_before(self) -> None:
        bench = Bench()
        lanes = bench.target.state.lanes
        bench.target.state.lanes = {number: structs.replace(lane, gen=7) for number, lane in lanes.items()}
        bench.connector.insert(row(1))
        assert "rowlock captured this source itself before" in self.stopped(bench)


def test_a_definition_in_force_stays() -> None:
    bench = Bench()
    before = bench.target.state.unit.definition
    other = changed(TABLE, columns=(*TABLE.columns, Column(name="x", type=ColumnType(kind=Kind.INT, bits=8))))
    bench.take_over()
    define_topic(bench.spec, bench.target, other)  # type: ignore[arg-type]
    assert bench.target.state.unit.definition == before


def test_without_a_definition_nothing_is_guessed() -> None:
    bench = Bench()
    bench.target.state.unit = structs.replace(bench.target.state.unit, definition=None)
    bench.connector.insert(row(1))
    assert "no definition of the table is active" in bench.apply().message


@settings(max_examples=25, deadline=None)
@given(data=st.data(), lanes=st.integers(1, 4))
def test_any_history_any_restarts_of_either_side(data: Any, lanes: int) -> None:
    """Debezium goes back to any event of its log now and then, and so do we; the target ends as the
    source."""
    bench = Bench(lanes=lanes)
    debezium, rows = bench.connector, {key: row(key) for key in range(4)}
    debezium.snapshot(*rows.values())
    logged = len(bench.topic)
    for version in range(2, data.draw(st.integers(5, 40))):
        key, other = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))
        match data.draw(
            st.sampled_from(["put", "put", "delete", "move", "truncate", "again", "apply", "apply"])
        ):
            case "put" if key in rows:
                debezium.update(rows[key], new := row(key, version=version))
                rows[key] = new
            case "put":
                rows[key] = row(key, version=version)
                debezium.insert(rows[key])
            case "delete" if key in rows:
                debezium.delete(rows.pop(key))
            case "move" if key in rows and other not in rows:
                debezium.update(rows.pop(key), new := row(other, version=version))
                rows[other] = new
            case "truncate" if version % 5 == 0:
                debezium.truncate()
                rows.clear()
            case "again":
                debezium.again(data.draw(st.integers(logged, len(bench.topic))))
            case "apply":
                bench.take_over()
                assert bench.apply(0, data.draw(st.integers(1, len(bench.topic)))).state == "ok"
    bench.take_over()
    assert bench.apply().state == "ok"
    assert bench.list_copies() == of(*rows.values())


def test_the_kit_writes_decimals_as_debezium_does() -> None:
    connector = Connector(TABLE)
    connector.insert(row(1))
    image = json.loads(connector.records[0] or b"")["after"]
    assert int.from_bytes(base64.b64decode(image["balance"]), "big", signed=True) == 1050
