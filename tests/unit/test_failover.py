"""The rules by which capture continues at another server of its source: the choice of the server, the place
in its log, the rows that the topics have, and the transactions that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from producer.binlog_format.log_event import LoggedStatement
from producer.checks.source_hosts import judge_roles
from producer.decoders.row_codec import replace_previous
from producer.errors import SourceRefusedError, TableStoppedError, TransientSourceError
from producer.sources.binlog.binlog_dump import BEGIN
from producer.sources.binlog.flavour import ExecutedGtids
from producer.sources.binlog.host_watch import HostWatch
from producer.sources.binlog.hosts import HostRole, choose_host, find_other_server, find_unapplied
from producer.sources.binlog.resume_search import GtidFile, GtidLogSearch
from producer.sources.changes import (
    Barrier,
    PassedTransaction,
    PreparedTransaction,
    TransactionHeader,
)
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from producer.sources.mysql.mysql_gtids import GtidSet, SetComparison
from producer.sources.server_state import ReplicaChannel
from producer.start.covered_rows import CoveredRows, CoveredTransaction, LateEvents, RowDigest
from producer.start.lacking import LackingSearch
from producer.statements.statement import parse_statement
from schemas.wire.position import Position
from schemas.wire.records import PreparedPlace
from tests.sim.kafka import Broker
from tests.stands.searched_log import FakeLog, end

A, B = "0000000a-0000-0000-0000-000000000000", "0000000b-0000-0000-0000-000000000000"
PRIMARY = HostRole(A, True, f"{A}:1-9", writer=A)
REPLICA = HostRole(B, False, f"{A}:1-8", writer=B)


# --- the server


def test_the_only_server_that_accepts_writes_is_read() -> None:
    assert choose_host({"b:1": REPLICA, "a:1": PRIMARY, "c:1": "does not answer"}) == "a:1"


def test_two_addresses_of_one_server_are_no_split_brain() -> None:
    assert choose_host({"a:1": PRIMARY, "vip:1": PRIMARY}) == "a:1"


def test_two_servers_that_accept_writes_are_refused_with_their_gtids() -> None:
    other = HostRole(B, True, f"{B}:1-2")
    with pytest.raises(SourceRefusedError, match=f"a:1 has {A}:1-9; b:1 has {B}:1-2"):
        choose_host({"a:1": PRIMARY, "b:1": other})


def test_capture_waits_while_no_server_accepts_writes() -> None:
    with pytest.raises(TransientSourceError, match="a:1 does not answer, b:1 is read-only"):
        choose_host({"a:1": "does not answer", "b:1": REPLICA})


@pytest.mark.parametrize(
    ("answers", "moves"),
    [
        ({"a:1": PRIMARY, "b:1": REPLICA}, None),
        ({"a:1": "does not answer", "b:1": REPLICA}, None),
        ({"a:1": REPLICA._replace(own=A), "b:1": REPLICA}, None),
        ({"a:1": REPLICA._replace(own=A), "b:1": PRIMARY._replace(own=B)}, "b:1"),
        ({"vip:1": PRIMARY._replace(own=B)}, "vip:1"),
    ],
    ids=["same", "cut off", "nobody else", "demoted", "address moved"],
)
def test_capture_moves_only_to_another_server_that_accepts_writes(answers: Any, moves: str | None) -> None:
    assert find_other_server(answers, A) == moves


def test_the_watch_raises_what_it_found_where_the_log_is_read() -> None:
    watch = HostWatch(dict, A, interval_s=3600)
    try:
        watch.judge_answers({"a:1": PRIMARY, "b:1": REPLICA})
        watch.require_same_server()
        watch.judge_answers({"a:1": REPLICA._replace(own=A), "b:1": PRIMARY._replace(own=B)})
        with pytest.raises(TransientSourceError, match="b:1 accepts writes now"):
            watch.require_same_server()
        watch.judge_answers({"a:1": PRIMARY, "b:1": PRIMARY._replace(own=B)})
        with pytest.raises(SourceRefusedError, match="several servers"):
            watch.require_same_server()
    finally:
        watch.close()


def test_the_role_of_the_server_that_is_read_is_confirmed_for_half_a_minute() -> None:
    now = [0.0]
    watch = HostWatch(dict, A, interval_s=3600, clock=lambda: now[0])
    try:
        for seconds, answers, confirmed in (
            (29.0, {"a:1": PRIMARY}, True),
            (58.0, {"a:1": REPLICA._replace(own=A), "b:1": REPLICA}, True),
            (60.0, {"a:1": "does not answer"}, False),
            (61.0, {"a:1": PRIMARY}, True),
        ):
            now[0] = seconds
            watch.judge_answers(answers)
            assert watch.has_confirmed_role() is confirmed, seconds
    finally:
        watch.close()


class Catalog:
    """What a server says of its role."""

    def __init__(self, *channels: ReplicaChannel, writable: bool = True) -> None:
        self.server: Any = self
        self.session = SimpleNamespace(flavour=MYSQL_FLAVOUR)
        self._channels, self._writable = channels, writable

    def is_writable(self) -> bool:
        return self._writable

    def read_executed(self, _captured: GtidSet) -> ExecutedGtids:
        executed = GtidSet.parse(f"{A}:1-8")
        return ExecutedGtids(executed, executed)

    def list_channels(self) -> list[ReplicaChannel]:
        return list(self._channels)


@pytest.mark.parametrize(
    ("catalog", "waits"),
    [
        (Catalog(), None),
        (Catalog(writable=False), "read-only"),
        (Catalog(ReplicaChannel("a:1", True, f"{A}:5-8")), "replicates a:1"),
        (Catalog(ReplicaChannel("a:1", False, f"{A}:5-9")), f"not applied ({A}:9)"),
        (Catalog(ReplicaChannel("a:1", False, f"{A}:5-8")), None),
    ],
    ids=["no channel", "read-only", "connected", "unapplied", "applied"],
)
def test_a_server_gets_no_more_once_it_has_applied_what_it_received(catalog: Any, waits: str | None) -> None:
    found = find_unapplied(catalog)
    assert found is None if waits is None else waits in (found or "")


def test_check_names_errant_transactions_but_not_those_of_the_primary_since_it_was_asked() -> None:
    replica = REPLICA._replace(gtids=f"{A}:1-11,{B}:1-2")
    (found,) = judge_roles({"a:1": PRIMARY, "b:1": replica}, "source s", MYSQL_FLAVOUR)
    assert (found.level, f"({B}:1-2)" in found.message) == ("warning", True)


# --- the place


def statement(text: str) -> Barrier:
    header = TransactionHeader("binlog.000002", 1, 0, 1, None)
    return Barrier(header, parse_statement(LoggedStatement("d", text)), 0)


def search(*changes: Any, before: str = f"{A}:1-3", opened: list[str] | None = None) -> GtidLogSearch:
    files = [
        GtidFile("binlog.000003", GtidSet.parse(f"{A}:1-6,{B}:1")),
        GtidFile("binlog.000002", GtidSet.parse(before)),
    ]

    def open_log(file: str, pos: int, captured: Callable[[str, str], bool]) -> Any:
        if opened is not None:
            opened.append(file)
        assert pos == BEGIN
        return FakeLog(list(changes), captured, 1000)

    return GtidLogSearch(lambda: files, open_log, (2, 1000), SetComparison)


def place_of(found: GtidLogSearch, captured: str, executed: str) -> Any:
    return found.find_resume_place(GtidSet.parse(captured), GtidSet.parse(executed))


def test_the_place_is_after_the_last_captured_transaction_and_what_precedes_it_is_listed() -> None:
    opened: list[str] = []
    found = search(
        end(f"{A}:4", 100), ("d", "t"), end(f"{B}:1", 200), end(f"{A}:5", 300), ("d", "x"),
        end(f"{B}:2", 400), opened=opened,
    )  # fmt: skip
    place = place_of(found, f"{A}:1-7", f"{A}:1-5,{B}:1-2")
    assert (place.file, place.pos) == ("binlog.000002", 300)
    assert place.passed == (PassedTransaction(f"{B}:1", frozenset({("d", "t")})),)
    assert opened == ["binlog.000002"], "a newer file has a transaction before it that is not captured"


def test_a_file_that_begins_after_all_of_them_is_read_from_its_beginning() -> None:
    opened: list[str] = []
    place = place_of(search(before=f"{A}:1-3", opened=opened), f"{A}:1-3", f"{A}:1-3,{B}:1")
    assert (place.file, place.pos, place.passed, opened) == ("binlog.000002", BEGIN, (), [])


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("ALTER TABLE t ADD COLUMN y INT", {("d", "t")}),
        ("DROP DATABASE d", None),
        ("INSERT INTO t VALUES (1)", None),
        ("MAKE ALL TABLES NEW", None),
    ],
)
def test_statements_that_precede_the_place_concern_their_tables_or_all(text: str, tables: Any) -> None:
    found = search(statement(text), end(f"{B}:1", 200), end(f"{A}:4", 300))
    (passed,) = place_of(found, f"{A}:1-4", f"{A}:1-4,{B}:1").passed
    assert passed.tables == tables


def test_a_purged_gap_is_refused_and_named() -> None:
    with pytest.raises(SourceRefusedError, match=rf"purged transactions that Kafka lacks \({A}:3\)"):
        place_of(search(), f"{A}:1-2", f"{A}:1-6")


def test_a_log_that_lacks_what_the_server_has_executed_is_refused() -> None:
    with pytest.raises(SourceRefusedError, match="log_replica_updates"):
        place_of(search(end(f"{A}:4", 100)), f"{A}:1-5", f"{A}:1-5")


def test_a_transaction_without_gtid_is_refused() -> None:
    with pytest.raises(SourceRefusedError, match=r"without GTID \(binlog.000002:90\)"):
        place_of(search(end(None, 100), end(f"{A}:4", 200)), f"{A}:1-4", f"{A}:1-4")


def test_open_xa_transactions_are_found_by_the_gtid_of_their_prepare() -> None:
    def prepared(gtid: str, *altered: Any) -> PreparedTransaction:
        place = PreparedPlace(file="old.000007", pos=1, end=2, ts_ms=3, altered=altered, gtid=gtid)
        return PreparedTransaction((("d", "t"),), place)

    new = PreparedPlace(file="binlog.000002", pos=110, end=200, ts_ms=9, gtid=f"{A}:5")
    found = search(
        end(f"{A}:4", 100), end(f"{A}:5", 200, prepared={"x1": PreparedTransaction((("d", "t"),), new)})
    )
    placed = found.locate_prepared(
        {"x1": prepared(f"{A}:5", ("d", "t")), "lost": prepared(f"{A}:99"), "old": prepared("")},
        GtidSet.parse(f"{A}:1-5"),
    )
    assert placed["x1"].place == msgspec.structs.replace(new, altered=(("d", "t"),))
    assert "lost" not in placed, "the server lacks its PREPARE: it never ends there"
    assert placed["old"] == PreparedTransaction((("d", "t"),), None)


# --- the rows that the topics have

AT = (0, 3, 100)


def record(
    gtid: str | None,
    row: int,
    value: int,
    *,
    op: str = "c",
    gen: int = 1,
    at: Position | None = None,
    **more: Any,
) -> tuple[bytes, bytes]:
    source = {"row": row, "position": at or (0, 3, 200, row), "gen": gen, "gtid": gtid}
    after = {"id": value}
    return msgspec.json.encode({"id": value}), msgspec.json.encode(
        {"op": op, "before": None, "after": after, "source": source, **more}
    )


def covered(*records: tuple[bytes, bytes], gtid: str = "u:1") -> CoveredTransaction:
    digest = RowDigest()
    for each in records:
        digest.add(*each)
    return CoveredTransaction(gtid, digest.rows, digest.digest())


def test_rows_that_the_topic_has_are_counted_at_other_positions_and_over_several_events() -> None:
    one, two, three = (record("u:1", row, row) for row in range(3))
    rows = CoveredRows(("d", "t"), [covered(one, two), covered(three, gtid="u:2")])
    assert rows.count_covered("u:1", [record("u:1", 7, 0, at=(1, 9, 9, 7))]) == 1
    assert rows.is_pending
    assert rows.count_covered("u:1", [record("u:1", 8, 1)]) == 1
    assert rows.count_covered("u:2", [three, record("u:2", 9, 9)]) == 1, "the rest of it was not published"
    assert not rows.is_pending


@pytest.mark.parametrize(
    ("gtid", "records"),
    [
        ("u:9", [record("u:9", 0, 5)]),
        ("u:1", [record("u:1", 0, 5), record("u:1", 1, 6)]),
        ("u:1", [record("u:1", 0, 0), record("u:1", 1, 1), record("u:1", 2, 2)]),
    ],
    ids=["another transaction first", "other values", "more rows than the topic has, and another after it"],
)
def test_other_rows_than_the_topic_has_stop_the_table(gtid: str, records: list[tuple[bytes, bytes]]) -> None:
    one, two = (record("u:1", row, row) for row in range(2))
    rows = CoveredRows(("d", "t"), [covered(one, two), covered(one, gtid="u:2")])
    with pytest.raises(TableStoppedError) as stopped:
        rows.count_covered(gtid, records)
    assert (stopped.value.cause, stopped.value.tables) == ("failover", {("d", "t")})
    assert "d.t" in str(stopped.value)


def late(
    *records: tuple[bytes, bytes], captured: str = "", here: tuple[int, int, int] | None = AT
) -> LateEvents:
    found = LateEvents(GtidSet.parse(captured), (0, 1), here)
    for each in records:
        found.add_event(*each)
    return found


def test_late_events_are_the_rows_of_earlier_eras_that_the_position_does_not_include() -> None:
    own = record(f"{A}:3", 0, 3)
    found = late(
        record(f"{A}:2", 0, 2, at=(0, 3, 90, 0)), own, own, record(f"{A}:4", 0, 4, at=(1, 1, 4, 0)),
        record(f"{A}:5", 0, 5, op="r", at=(0, 3, 300, -5)), captured=f"{A}:1-2",
    )  # fmt: skip
    assert (found.list_transactions(), found.problem) == ([covered(own, gtid=f"{A}:3")], "")


def test_late_events_of_a_replaced_process_do_not_count() -> None:
    found = late(record(f"{A}:3", 0, 3, gen=5), record(f"{A}:4", 0, 4, gen=4, at=(0, 3, 300, 0)))
    assert [each.gtid for each in found.list_transactions()] == [f"{A}:3"]


def test_a_statement_or_a_row_without_gtid_after_the_position_cannot_be_compared() -> None:
    assert "a statement" in late(record(None, 0, 1, op="t", at=(0, 3, 101, 0))).problem
    assert "a statement" in late(record(None, -9, 1, op="m", at=(0, 3, 101, -9))).problem
    assert late(record(None, -9, 1, op="m", at=(0, 3, 100, -9))).problem == "", "a repeated definition"
    assert late(record(None, -9, 1, op="m", at=(0, 3, 101, -9), chunk={})).problem == "", "a chunk's marker"
    assert late(record(None, 9, 1, op="m", at=(0, 3, 101, 9), stop={})).problem == "", (
        "stored with the position"
    )
    assert "without GTID" in late(record(None, 0, 1)).problem
    assert late(record(None, 0, 1, op="t"), here=None).problem == "", "the switch has judged it"


def test_the_first_row_that_is_sent_follows_what_the_topic_has() -> None:
    value = (
        b'{"op":"c","before":null,"after":{"prev":"\\"prev\\":[1],\\"gen\\":"},'
        b'"source":{"prev":[1,2,3,4],"gen":7}}'
    )
    assert replace_previous(value, (0, 3, 200, 1)) == value.replace(b"[1,2,3,4]", b"[0,3,200,1]")
    assert replace_previous(value, None) == value.replace(b"[1,2,3,4]", b"null")


# --- what the new server lacks


def topic_of(broker: Broker, name: str, *records: tuple[bytes, bytes]) -> None:
    broker.ensure([name], {})
    for key, value in records:
        broker.append(name, key, value)


def lacking(broker: Broker, gtids: str) -> LackingSearch:
    found = LackingSearch(GtidSet.parse(gtids))
    found.search_topics(broker, {name: broker.get_bounds(name) for name in broker.topics})
    return found


def at(number: int, uuid: str = A, **more: Any) -> tuple[bytes, bytes]:
    return record(f"{uuid}:{number}", 0, number, at=(0, 3, number * 10, 0), **more)


def test_topics_with_missing_transactions_are_found() -> None:
    broker = Broker()
    topic_of(broker, "one", at(1), at(8))
    topic_of(broker, "two", at(2), at(9))
    topic_of(broker, "three", at(3))
    found = lacking(broker, f"{A}:8-9")
    assert {name: str(each) for name, each in found.found.items()} == {"one": f"{A}:8", "two": f"{A}:9"}
    assert found.cut == set()


def test_a_long_topic_is_read_only_as_far_back_as_a_missing_transaction_can_be() -> None:
    broker = Broker()
    topic_of(broker, "busy", *(at(number) for number in range(1, 3000)))
    topic_of(broker, "quiet", *(record(None, -5, n, op="r", at=(0, 3, 5, -5 + n)) for n in range(3000)))
    read: list[tuple[str, int]] = []
    read_all = broker.read_all

    def counted(stretches: Any) -> Any:
        read.extend((name, parts[0][0]) for name, parts in stretches.items())
        return read_all(stretches)

    broker.read_all = counted  # type: ignore[method-assign]
    found = lacking(broker, f"{A}:2990-2999")
    assert {*found.found} == {"busy"}
    assert min(begin for _, begin in read) >= 2400


def test_a_repeated_definition_does_not_end_the_search() -> None:
    broker = Broker()
    topic_of(
        broker, "one", at(1), at(8), *(record(None, -9, 1, op="m", at=(0, 1, 1, -9)) for _ in range(600))
    )
    topic_of(broker, "two", at(2))
    assert {*lacking(broker, f"{A}:8").found} == {"one"}


def test_a_topic_that_begins_too_late_is_named() -> None:
    broker = Broker()
    topic_of(broker, "one", at(9))
    broker.expire("one")
    topic_of(broker, "one", at(9))
    assert lacking(broker, f"{A}:8").cut == {"one"}


# --- GTID sets


@pytest.mark.parametrize(
    ("one", "other", "left"),
    [
        (f"{A}:1-9", f"{A}:4-5", f"{A}:1-3:6-9"),
        (f"{A}:1-9", f"{A}:1-9", ""),
        (f"{A}:1-9,{B}:1", f"{A}:9-12", f"{A}:1-8,{B}:1"),
        (f"{A}:3-4:8", f"{A}:1-3:5-7", f"{A}:4:8"),
        (f"{A}:1", f"{B}:1", f"{A}:1"),
        (f"{A}:1-9", f"{A}:1:3:5:9", f"{A}:2:4:6-8"),
    ],
)
def test_sets_are_subtracted_and_intersected(one: str, other: str, left: str) -> None:
    first, second = GtidSet.parse(one), GtidSet.parse(other)
    assert str(first.subtract(second)) == left
    shared = first.intersect(second)
    assert shared.count() + first.subtract(second).count() == first.count()
    assert first.covers(shared)
    assert second.covers(shared)


def test_the_lowest_number_of_each_server_is_known() -> None:
    assert GtidSet.parse(f"{A}:7:9,{B}:2-3").find_first_numbers() == {A: 7, B: 2}
