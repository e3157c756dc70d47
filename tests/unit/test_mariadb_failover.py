"""The rules by which capture continues at another MariaDB server: sets of GTIDs of domains, the comparison of
the new log with what was captured, and the place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from producer.checks.source_hosts import judge_roles
from producer.errors import SourceRefusedError
from producer.sources.binlog.flavour import ExecutedGtids
from producer.sources.binlog.hosts import HostRole, choose_host, find_unapplied
from producer.sources.binlog.resume_search import GtidFile, GtidLogSearch, ResumePlace
from producer.sources.binlog.server_switch import complete_gtids
from producer.sources.changes import LogStart, PassedTransaction, ServerSwitch
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.sources.mariadb.mariadb_gtids import (
    DomainComparison,
    DomainOrder,
    MariadbGtidSet,
    find_executed,
    has_reached_gtids,
)
from producer.sources.server_state import ReplicaChannel, ServerState
from schemas.problems import Problem
from schemas.wire.position import DEFINITION_ROW, Position
from schemas.wire.records import Anchor, Identity
from tests.kits.start import ACCT, Start, event, table
from tests.stands.searched_log import FakeLog, end

gtids = MariadbGtidSet.parse


# --- sets


def test_a_number_includes_all_before_it_of_its_domain_and_server() -> None:
    found = gtids("0-1-42,1-7-9")
    assert "0-1-1" in found
    assert "0-1-43" not in found
    assert "0-2-1" not in found
    assert str(found.subtract(gtids("0-1-40"))) == "0-1-41..42,1-7-9"
    assert str(found.intersect(gtids("0-1-50,1-8-9"))) == "0-1-42"
    assert found.covers(gtids("0-1-2"))


def test_a_transaction_of_a_log_includes_those_before_it_and_a_single_one_does_not() -> None:
    logged, single = gtids("0-1-3"), MariadbGtidSet()
    logged.add_logged("0-1-7")
    logged.add_logged("0-1-5")
    single.add("0-1-7")
    assert (str(logged), single.count(), "0-1-6" in single) == ("0-1-7", 1, False)
    logged.remove_from("0-1-5")
    assert str(logged) == "0-1-4"


def test_what_precedes_a_lacking_transaction_is_known_by_the_domain() -> None:
    assert gtids("0-1-9,0-2-12,3-1-4").subtract(gtids("0-1-6,0-2-10")).find_first_numbers() == {
        "0": 7,
        "3": 1,
    }
    assert MariadbGtidSet.split_series("0-2-12") == ("0", 12)


@pytest.mark.parametrize(
    ("stored", "now", "reached"),
    [
        ("0-1-9,1-2-3", "0-1-9,\n1-2-4,7-7-7", True),
        ("0-1-9", "0-1-8", False),
        ("0-1-9,1-2-3", "0-1-9", True),
        ("0-1-9,0-3-5", "0-1-9", True),
        ("0-1-9,0-3-15", "0-1-9", False),
        ("0-1-9", "", False),
        (None, None, True),
    ],
    ids=["all", "fewer", "domain deleted", "server no longer shown", "higher", "reset", "none"],
)
def test_a_server_has_what_was_captured(stored: str | None, now: str | None, reached: bool) -> None:
    assert has_reached_gtids(stored, now) is reached


# --- what the new server has


@pytest.mark.parametrize(
    ("captured", "logged", "applied", "lacking"),
    [
        ("0-1-9", "0-1-9", "", ""),
        ("0-1-9", "0-1-7", "", "0-1-8..9"),
        ("0-1-9,0-3-4", "0-1-9", "", ""),
        ("0-1-9,7-1-5", "0-1-9", "7-1-5", ""),
        ("0-1-9,7-1-5", "0-1-9", "7-1-3", "7-1-4..5"),
        ("0-1-9", "", "0-1-9", ""),
        ("0-1-100,0-2-120", "0-1-100", "", "0-2-101..120"),
        ("0-1-90,0-2-99", "0-1-100", "0-1-100", "0-2-91..99"),
        ("0-1-14", "0-1-12,0-2-13", "0-1-13", "0-1-13..14"),
        ("0-1-13", "0-2-13", "0-1-13", "0-1-13"),
        ("0-1-100", "0-2-101", "0-1-100", ""),
    ],
    ids=[
        "all", "a tail", "a server before it", "a domain that is deleted", "a part of one",
        "built from a backup", "a server that it never replicated", "another history of the domain",
        "skipped for an errant one", "skipped, and its stream is not logged", "a backup that was promoted",
    ],
)  # fmt: skip
def test_what_the_new_server_lacks(captured: str, logged: str, applied: str, lacking: str) -> None:
    executed, unshown = find_executed(gtids(captured), gtids(logged), gtids(applied))
    assert unshown == ()
    assert str(gtids(captured).subtract(executed)) == lacking


def test_a_domain_of_which_the_new_server_shows_nothing_is_named() -> None:
    executed, unshown = find_executed(gtids("0-1-9,7-1-5"), gtids("0-1-9"), gtids("0-1-4"))
    assert (str(executed), unshown) == ("0-1-9", ("7-1-5",))


# --- the place


def place_of(captured: str, before: str, *log: tuple[str, tuple[str, str]], logged: str) -> ResumePlace:
    changes: list[Any] = []
    for number, (gtid, name) in enumerate(log, start=1):
        changes += [name, end(gtid, 100 * number)]
    search = GtidLogSearch(
        lambda: [GtidFile("binlog.000002", gtids(before))],
        lambda _file, _pos, captured: FakeLog(list(changes), captured, 1000),  # type: ignore[arg-type,return-value]
        (2, 1000),
        DomainComparison,
    )
    return search.find_resume_place(gtids(captured), gtids(logged))


A, B = ("d", "a"), ("d", "b")


def test_domains_in_another_order_resume_at_the_earliest() -> None:
    place = place_of(
        "0-1-9,1-1-4", "0-1-7,1-1-3", ("1-1-4", B), ("0-1-8", A), ("1-1-5", B), ("0-1-9", A), ("0-1-10", A),
        logged="0-1-10,1-1-5",
    )  # fmt: skip
    assert (place.file, place.pos, place.passed) == ("binlog.000002", 200, ())
    assert place.ahead == (PassedTransaction("0-1-9", frozenset({A})),)
    assert str(place.count_reached(gtids("0-1-9,1-1-4"))) == "0-1-8,1-1-4"


def test_an_errant_transaction_is_listed_though_its_server_wrote_more_since() -> None:
    place = place_of(
        "0-1-100", "0-1-56", ("0-2-57", B), ("0-1-58", A), ("0-1-100", A), ("0-2-101", A),
        logged="0-1-100,0-2-150",
    )  # fmt: skip
    assert place.pos == 300
    assert [each.gtid for each in place.passed] == ["0-2-57"]
    assert str(place.missed) == "0-1-57,0-1-59..99", (
        "Kafka may have 0-1-57, and the numbers that are passed over"
    )
    assert str(place.count_reached(gtids("0-1-100"))) == "0-1-100,0-2-57"


def test_an_errant_transaction_after_the_place_does_not_move_it() -> None:
    place = place_of(
        "0-1-9,1-1-4", "0-1-7,1-1-4", ("1-1-5", B), ("0-2-8", A), ("0-1-9", A), logged="0-1-9,0-2-8,1-1-5"
    )
    assert (place.pos, [each.gtid for each in place.passed], place.passed_before) == (4, ["0-2-8"], ())
    assert [each.gtid for each in place.ahead] == ["0-1-9"]
    assert str(place.missed) == "0-1-8"


def test_a_domain_that_was_added_is_read_from_its_first_transaction() -> None:
    place = place_of("0-1-9", "0-1-7", ("0-1-8", A), ("5-1-1", B), ("0-1-9", A), logged="0-1-9,5-1-1")
    assert (place.pos, [each.gtid for each in place.ahead], place.passed) == (100, ["0-1-9"], ())


@pytest.mark.parametrize(
    ("captured", "log", "why"),
    [
        ("0-1-9", [("0-1-12", A)], "begins with transaction 0-1-12"),
        ("0-1-9", [("0-1-9", A), ("5-1-3", B)], "begins with transaction 5-1-3"),
        ("0-1-9", [("0-1-9", A), ("0-2-9", B)], "after number 9"),
        ("0-1-9,1-1-1", [("0-1-8", A), ("0-1-7", B)], "after number 8"),
    ],
    ids=["a gap", "a gap in a new domain", "a repeated number", "a falling number"],
)
def test_a_log_that_cannot_be_compared_is_refused(captured: str, log: Any, why: str) -> None:
    with pytest.raises(SourceRefusedError, match=why):
        place_of(captured, "", *log, logged="0-1-12,0-2-9,1-1-1,5-1-3")


def test_a_log_that_follows_on_a_backup_is_read_from_its_beginning() -> None:
    place = place_of("0-1-9", "", ("0-3-10", A), logged="0-3-10")
    assert (place.pos, place.missed, place.passed) == (4, None, ())


def test_numbers_that_do_not_rise_in_their_domain_are_refused_while_the_log_is_read() -> None:
    order = DomainOrder(gtids("0-1-9,1-1-2"))
    for gtid in ("0-2-10", "1-1-3", "4-1-1"):
        order.accept(gtid)
    for gtid in ("0-1-10", "0-1-3", "4-1-1"):
        with pytest.raises(SourceRefusedError, match="gtid_strict_mode = ON"):
            order.accept(gtid)


# --- the roles


PRIMARY, REPLICA = HostRole("a", True, "0-1-9", "1"), HostRole("b", False, "0-1-8", "2")
LOOSE = Problem("has gtid_strict_mode = OFF: …", "SET GLOBAL gtid_strict_mode = ON")


def test_a_server_without_strict_mode_is_refused() -> None:
    with pytest.raises(SourceRefusedError, match="a:1 has gtid_strict_mode = OFF"):
        choose_host({"a:1": PRIMARY._replace(unfit=LOOSE), "b:1": REPLICA})
    assert choose_host({"a:1": PRIMARY, "b:1": REPLICA._replace(unfit=LOOSE)}) == "a:1"


@pytest.mark.parametrize(
    ("replica", "level", "text"),
    [
        (REPLICA._replace(gtids="0-1-12,0-2-7"), "warning", "(0-2-7)"),
        (REPLICA._replace(unfit=LOOSE), "error", "b:1 has gtid_strict_mode"),
        (REPLICA._replace(writer="1"), "error", "a:1 and b:1 write their transactions under one name (1)"),
    ],
    ids=["errant", "not strict", "same server_id"],
)
def test_check_names_what_a_failover_would_meet(replica: HostRole, level: str, text: str) -> None:
    (found,) = judge_roles({"a:1": PRIMARY, "b:1": replica}, "source s", MARIADB_FLAVOUR)
    assert (found.level, text in found.message) == (level, True)


def channels(**row: Any) -> list[ReplicaChannel]:
    shown = {
        "Master_Host": "a", "Master_Port": 1, "Slave_IO_Running": "No", "Gtid_IO_Pos": "",
        "Master_Log_File": "b.1", "Read_Master_Log_Pos": 9, "Relay_Master_Log_File": "b.1",
        "Exec_Master_Log_Pos": 9, **row,
    }  # fmt: skip
    session: Any = SimpleNamespace(flavour=MARIADB_FLAVOUR, run_first_known=lambda _statements: [shown])
    return ServerState(session).list_channels()


@pytest.mark.parametrize(
    ("row", "waits"),
    [
        ({"Slave_IO_Running": "Yes"}, "it replicates a:1"),
        ({"Gtid_IO_Pos": "0-1-9"}, "not applied (0-1-9)"),
        ({"Gtid_IO_Pos": "0-1-8", "Exec_Master_Log_Pos": 5}, None),
        ({"Exec_Master_Log_Pos": 5}, "not applied"),
        ({}, None),
    ],
    ids=["connected", "unapplied", "applied", "unapplied by place", "applied by place"],
)
def test_a_server_gets_no_more_once_it_has_applied_what_it_received(row: Any, waits: str | None) -> None:
    server = SimpleNamespace(
        is_writable=lambda: True, list_channels=lambda: channels(**row),
        read_executed=lambda _captured: ExecutedGtids(gtids("0-1-8"), gtids("0-1-8")),
    )  # fmt: skip
    catalog: Any = SimpleNamespace(server=server, session=SimpleNamespace(flavour=MARIADB_FLAVOUR))
    found = find_unapplied(catalog)
    assert found is None if waits is None else waits in (found or "")


def test_a_first_start_counts_what_was_logged_after_the_question_for_gtids() -> None:
    asked: list[Any] = []

    def run_query(sql: str, arguments: Any) -> list[dict[str, str]]:
        asked.append((sql, arguments))
        return [{"gtids": "0-1-12,1-1-3"}]

    identity = Identity(server_uuid=None, server_id=1, version="11", gtid_set="0-1-10,0-3-7")
    session = SimpleNamespace(flavour=MARIADB_FLAVOUR, run_query=run_query)
    catalog: Any = SimpleNamespace(session=session)
    nothing: Any = None
    found = complete_gtids(catalog, nothing, LogStart("binlog.000002", 77, identity, (), 0), {})
    assert found.gtid_set == "0-1-12,0-3-7,1-1-3"
    assert asked[0][1] == ("binlog.000002", 77)


# --- the switch


class MariadbStart(Start):
    make_set = MariadbGtidSet
    identity = Identity(server_uuid=None, server_id=2, version="11", gtid_set="0-1-5,1-1-9")


DEFINED: Position = (0, 3, 100, DEFINITION_ROW)
CAPTURED = Identity(server_uuid=None, server_id=1, version="11", gtid_set="0-1-7,1-1-9")


def row(gtid: str, pos: int, value: int) -> bytes:
    made = msgspec.json.decode(event((0, 3, pos, 0), 4, op="c"))
    made["source"]["gtid"] = gtid
    return msgspec.json.encode({**made, "before": None, "after": {"id": value}})


def a_start(*events: bytes, **facts: Any) -> MariadbStart:
    """A start at another server. All of the topic's events are before the stored position."""
    start = MariadbStart()
    anchors = {"bank.acct": Anchor(definition=0, end=len(events), settled=(len(events), 4))}
    start.stored(identity=CAPTURED, anchors=anchors, gen=4, pos=500)
    start.has(event(DEFINED, definition=table()), *events)
    given: dict[str, Any] = {"passed": (), "prepared": {}, **facts}
    start.switch = ServerSwitch(gtids("0-1-7,1-1-12"), True, **given)
    return start


def ahead(*numbers: int) -> tuple[PassedTransaction, ...]:
    return tuple(PassedTransaction(f"0-1-{number}", frozenset({ACCT})) for number in numbers)


ROWS = row("0-1-5", 150, 5), row("0-1-6", 200, 6), row("0-1-7", 300, 7)


def test_rows_that_the_new_log_repeats_are_expected_although_the_position_included_them() -> None:
    start = a_start(*ROWS, ahead=ahead(6, 7))
    started = start.begin()
    assert not started.record.stops
    assert started.record.anchors["bank.acct"].settled == (1, 4)
    covered = started.covered[ACCT]
    assert covered.count_covered("0-1-6", [(b"{}", ROWS[1])]) == 1
    assert covered.count_covered("0-1-7", [(b"{}", ROWS[2])]) == 1
    assert not covered.is_pending
    assert start.captured.get_topic(ACCT).settled == (1, 4), "until a record has passed them"


def test_a_repeated_transaction_that_the_topic_does_not_have_stops_its_table() -> None:
    started = a_start(*ROWS[::2], ahead=ahead(6, 7)).begin()
    reason = started.record.stops["bank.acct"].reason
    assert "that its topic does not have: 0-1-6" in reason


def test_a_repeated_statement_stops_its_table() -> None:
    statement = msgspec.json.decode(event((0, 3, 200, 0), 4, op="t"))
    statement["source"]["gtid"] = "0-1-6"
    started = a_start(ROWS[0], msgspec.json.encode(statement), ROWS[2], ahead=ahead(6, 7)).begin()
    assert "it has a statement" in started.record.stops["bank.acct"].reason


def test_a_number_that_the_log_passes_over_stops_the_table_whose_topic_has_it() -> None:
    assert not a_start(ROWS[0], missed=gtids("0-1-6").subtract(gtids("0-1-5"))).begin().record.stops
    started = a_start(*ROWS, missed=gtids("0-1-6").subtract(gtids("0-1-5"))).begin()
    assert "lacks transactions on bank.acct that Kafka has: 0-1-6" in started.record.stops["bank.acct"].reason


def test_a_domain_without_a_trace_is_refused_if_the_topics_do_not_show_its_tables() -> None:
    def begin(*, expired: bool) -> Any:
        start = a_start(*ROWS, unshown=("7-1-3",))
        start.stored(identity=msgspec.structs.replace(CAPTURED, gtid_set="0-1-7,1-1-9,7-1-3"), gen=5, pos=500)
        if expired:
            start.topics.expire(start.topic())
            start.topics.put(start.topic(), event(DEFINED, definition=table()))
        return start.begin()

    assert not begin(expired=False).record.stops
    with pytest.raises(SourceRefusedError, match="shows nothing of the GTID domains of 7-1-3") as refused:
        begin(expired=True)
    assert "SET GLOBAL gtid_slave_pos" in refused.value.problem.remedy
