"""What a start of capture does at another server of its source: short histories, in memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from producer.definitions.requests import UnprovenDefinition
from producer.errors import TransientSourceError
from producer.sources.changes import PassedTransaction, PreparedTransaction, ServerSwitch
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.start.started import StartedCapture
from schemas.wire.copies import CopyMark
from schemas.wire.event import Chunk
from schemas.wire.position import DEFINITION_ROW, Position
from schemas.wire.records import Anchor, Identity, PreparedPlace
from tests.kits.start import ACCT, OTHER_UUID, RECORD, Start, a_stop, event, table

DEFINED: Position = (0, 3, 100, DEFINITION_ROW)
NEW: Position = (1, 2, 77, DEFINITION_ROW)
U = OTHER_UUID
IDENTITY = Identity(server_uuid="a", server_id=1, version="9", gtid_set=f"{U}:1-5")


def switch(executed: str = f"{U}:1-9", *, final: bool = True, **more: Any) -> ServerSwitch:
    given: dict[str, Any] = {"passed": (), "prepared": {}, **more}
    return ServerSwitch(GtidSet.parse(executed), final, **given)


def row(number: int, at: Position, value: int = 1, gen: int = 4, op: str = "c") -> bytes:
    made = msgspec.json.decode(event(at, gen, op=op))
    made["source"]["gtid"] = f"{U}:{number}"
    return msgspec.json.encode({**made, "before": None, "after": {"id": value}})


def a_start(*events: bytes, found: ServerSwitch | None = None, **record: Any) -> Start:
    start = Start()
    start.stored(**{"identity": IDENTITY, **record})
    start.has(event(DEFINED, definition=table()), *events)
    start.switch = found or switch()
    return start


def a_later_start(start: Start) -> Start:
    again = Start()
    again.topics, again.tables = start.topics, start.tables
    return again


def reason(started: StartedCapture) -> str:
    stop = started.record.stops.get("bank.acct")
    return "" if stop is None else stop.reason


def test_another_server_is_a_new_era_of_the_same_history() -> None:
    start = a_start(row(5, (0, 3, 450, 0)), prepared={"x": (ACCT,)})
    place = PreparedPlace(file="binlog.000001", pos=5, end=6, ts_ms=7, gtid=f"{U}:4")
    start.switch = switch(prepared={"x": PreparedTransaction((ACCT,), place)})
    started = start.begin()
    claimed, switched = start.claimed()
    assert (claimed.epoch, claimed.pos, claimed.identity, claimed.gen) == (0, RECORD.pos, IDENTITY, 5)
    assert switched == started.record
    assert (switched.epoch, switched.began, switched.file, switched.pos) == (1, 0, "binlog.000002", 77)
    assert (switched.identity, switched.stops, switched.prepared_at) == (start.identity, {}, {"x": place})
    fence, defined = start.sent()
    assert (fence.source.position, fence.source.gen) == (DEFINED, 5), "what another process sends is dropped"
    assert (defined.source.position, defined.definition, defined.copy) == (NEW, table(), None)
    assert defined.source.prev == (0, 3, 450, 0)
    assert not started.fresh


def test_snapshots_and_copies_of_the_history_count_at_the_new_server() -> None:
    begin = event((0, 3, 200, DEFINITION_ROW), definition=table(), copy=CopyMark(id="r1"))
    chunk = Chunk(number=1, after=None, upto=None, first_row=-9, rows=1, last=True, repeated=True)
    start = a_start(begin, event((0, 3, 300, -9), chunk=chunk))
    started = start.begin()
    state = start.captured.tables[ACCT]
    assert state.begun is not None
    assert (state.begun.mark.id, state.marker_offset, state.defined_at) == ("r1", 2, NEW)
    assert started.tails[ACCT].begun == state.begun
    again = a_later_start(start)
    again.begin()
    begun = again.captured.tables[ACCT].begun
    assert begun is not None
    assert begun.mark.id == "r1"


def test_rows_after_the_position_are_covered_at_each_start_until_the_record_passes_them() -> None:
    late = (row(6, (0, 3, 500, 0)), row(7, (0, 3, 600, 0), 2))
    start = a_start(row(5, (0, 3, 450, 0)), *late)
    assert start.begin().covered[ACCT].is_pending
    covered = a_later_start(start).begin().covered[ACCT]
    assert covered.count_covered(f"{U}:6", [(b"{}", late[0])]) == 1
    assert covered.count_covered(f"{U}:7", [(b"{}", late[1])]) == 1
    assert not covered.is_pending


def test_transactions_that_the_new_server_lacks_stop_their_tables_durably() -> None:
    start = a_start(row(5, (0, 3, 450, 0)), found=switch(f"{U}:1-4"))
    start.tables["bank", "other"] = table("other")
    start.has(event(DEFINED, definition=table("other"), name="other"), name="other")
    started = start.begin()
    assert f"lacks transactions on bank.acct that Kafka has: {U}:5" in reason(started)
    assert {*started.record.stops} == {"bank.acct"}
    assert start.claimed()[-1].stops == started.record.stops, "with the new place"
    assert ACCT in start.captured.stopped
    assert ("bank", "other") in start.captured.tables


def test_late_rows_of_transactions_that_the_new_server_lacks_stop_their_table() -> None:
    started = a_start(row(6, (0, 3, 500, 0)), found=switch(f"{U}:1-5")).begin()
    assert f"{U}:6" in reason(started)


def test_missing_transactions_are_waited_for_while_the_server_may_get_them() -> None:
    start = a_start(row(6, (0, 3, 500, 0)), found=switch(f"{U}:1-5", final=False))
    with pytest.raises(TransientSourceError, match="lacks transactions that Kafka has"):
        start.begin()
    assert [each.epoch for each in start.claimed()] == [0]


@pytest.mark.parametrize(
    ("tables", "stopped"), [(frozenset({("BANK", "Acct")}), True), (None, True), (frozenset(), False)]
)
def test_transactions_before_the_place_that_are_not_captured_stop_their_tables(
    tables: Any, stopped: bool
) -> None:
    started = a_start(found=switch(passed=(PassedTransaction("v:1", tables),))).begin()
    assert ("v:1" in reason(started)) is stopped


def test_tables_whose_names_differ_in_case_only_stop_together() -> None:
    """Whether the new server compares names with their case is not known here."""
    start = a_start(found=switch(passed=(PassedTransaction("v:1", frozenset({ACCT})),)))
    start.tables[("bank", "ACCT")] = start.tables[ACCT]
    started = start.begin()
    assert sorted(started.record.stops) == ["bank.ACCT", "bank.acct"]


def test_a_statement_after_the_position_stops_its_table() -> None:
    assert "cannot be compared" in reason(a_start(event((0, 3, 600, 0), op="t")).begin())


def test_a_stop_is_kept_with_its_cause_and_place() -> None:
    stop = a_stop(cause="value")
    start = a_start(event((0, 3, 400, 2**52), stop=stop), stops={"bank.acct": stop}, found=switch(f"{U}:1-4"))
    started = start.begin()
    assert started.record.stops == {"bank.acct": stop}
    assert [each.source.position for each in start.sent() if each.stop is not None] == [(0, 3, 400, 2**52)]


def test_a_table_that_the_new_server_defines_otherwise_is_stopped_at_each_start() -> None:
    start = a_start()
    start.tables[ACCT] = table("acct", "more")
    start.begin()
    stopped = start.captured.stopped[ACCT].stop
    assert (stopped.cause, "defines bank.acct otherwise" in stopped.reason) == ("failover", True)
    again = a_later_start(start)
    again.begin()
    assert again.captured.stopped[ACCT].stop.cause == "failover"


def test_a_table_with_a_later_statement_in_the_new_log_is_stopped() -> None:
    start = a_start()
    start.proofs[ACCT] = UnprovenDefinition((2, 500))
    start.begin()
    assert "file 2 at 500" in start.captured.stopped[ACCT].stop.reason


def test_the_topics_are_read_only_after_what_is_settled() -> None:
    anchor = Anchor(definition=0, end=1, highest=(0, 3, 450, 0), settled=(1, 4))
    start = a_start(row(9, (0, 3, 450, 0)), row(6, (0, 3, 500, 0)), anchors={"bank.acct": anchor})
    covered = start.begin().covered[ACCT]
    assert covered.count_covered(f"{U}:6", [(b"{}", row(6, (0, 3, 500, 0)))]) == 1


def test_rows_of_a_replaced_process_after_what_is_settled_are_not_covered() -> None:
    anchor = Anchor(definition=0, end=0, highest=DEFINED, settled=(0, 4))
    start = a_start(row(6, (0, 3, 500, 0), gen=3), anchors={"bank.acct": anchor})
    assert start.begin().covered == {}
