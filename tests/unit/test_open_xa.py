"""XA transactions that are open: what `check`, `status` and the log report about them."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
import structlog
from msgspec.structs import replace

from producer.errors import SourceRefusedError
from producer.sources.binlog.assembly import TransactionBuffer
from producer.sources.binlog.binlog_log import BinlogLog
from producer.sources.binlog.prepared_xa import PreparedXaTransactions, RecoveredXa
from producer.sources.binlog.unlogged_xa import require_logged_xa
from producer.sources.binlog.xa_recover import format_xid, list_recovered
from producer.sources.changes import PreparedTransaction, select_oldest_places
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from rowlock.inspect.observed.source_status import PreparedXaStatus, SourceStatus, judge_source
from rowlock.inspect.open_xa import judge_open_xa
from schemas.wire.records import Identity, PreparedPlace, StoredPosition, Watermark
from tests.kits.log import CAPTURED, OTHER, Log
from tests.kits.seekable_log import SeekableLog

NOW_MS = 10_000_000
PLACE = PreparedPlace(file="binlog.000009", pos=300, end=400, ts_ms=NOW_MS - 3_600_000)


def source(**more: Any) -> SourceStatus:
    prepared = (PreparedXaStatus("X61,X,1", "binlog.000009:300", NOW_MS - 120_000),)
    return SourceStatus("b1", **{"state": "running", "idle": True, "prepared": prepared, **more})


def test_transaction_that_the_server_does_not_know_is_a_warning() -> None:
    (found,) = judge_open_xa(source(), set(), NOW_MS)
    assert "the server does not know it" in found.message
    assert "binlog.000009:300" in found.message
    assert "XA ROLLBACK" in found.remedy


def test_transaction_is_not_lost_while_it_may_have_ended_in_the_unread_log() -> None:
    assert list(judge_open_xa(source(idle=False), set(), NOW_MS)) == []


def test_transaction_is_not_lost_while_the_server_may_be_preparing_it() -> None:
    assert list(judge_open_xa(source(), set(), NOW_MS - 70_000)) == []


def test_old_transaction_is_a_warning() -> None:
    assert list(judge_open_xa(source(), {"X61,X,1"}, NOW_MS)) == []
    (found,) = judge_open_xa(source(), {"X61,X,1"}, NOW_MS + 600_000)
    assert "has been prepared for 12.0 minutes" in found.message


def test_transaction_from_before_the_first_start_is_a_warning() -> None:
    (found,) = judge_open_xa(source(state="new", prepared=()), {"X61,X,1"}, NOW_MS)
    assert "all tables stop" in found.message


def test_status_counts_the_log_from_the_oldest_open_prepare() -> None:
    identity = {"source": "b1", "gen": 1, "position": (0, 9, 900, -1), "file": "binlog.000009"}
    seen = Watermark(commit_ts_ms=NOW_MS - 5000, ts_ms=NOW_MS, idle=False, **identity)  # type: ignore[arg-type]
    found = judge_source("b1", seen, NOW_MS)
    assert found.find_needed_log(NOW_MS) == (5.0, "binlog.000009:900", "capture has not read")
    found = judge_source("b1", replace(seen, prepared={"X61,X,1": PLACE}), NOW_MS)
    assert found.prepared == (PreparedXaStatus("X61,X,1", "binlog.000009:300", PLACE.ts_ms),)
    assert found.find_needed_log(NOW_MS) == (3600.0, "binlog.000009:300", "XA transaction X61,X,1 needs")


def test_watermark_names_the_oldest_by_file_number_and_offset() -> None:
    places = {
        "c": replace(PLACE, file="binlog.1000000"),
        "b": replace(PLACE, file="binlog.999999", pos=9),
        "a": replace(PLACE, file="binlog.999999", pos=10),
    }
    prepared = {xid: PreparedTransaction((CAPTURED,), place) for xid, place in places.items()}
    prepared["old"] = PreparedTransaction((CAPTURED,), None)
    prepared["of another table"] = PreparedTransaction((OTHER,), replace(PLACE, file="binlog.000001"))
    assert list(select_oldest_places(prepared, [("Bank", "ACCT")], 2)) == ["b", "a"]
    assert select_oldest_places({}, [CAPTURED], 2) == {}


@pytest.mark.parametrize("data", [b"ab\xff", "0x6162FF"])
def test_xids_have_the_form_of_the_log(data: bytes | str) -> None:
    assert format_xid(data, 2, 1, 7) == "X6162,Xff,7"


class Session:
    flavour = MYSQL_FLAVOUR

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def run_query(self, sql: str) -> Any:
        assert sql == "XA RECOVER CONVERT XID"
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def test_user_without_the_right_compares_nothing() -> None:
    row = {"data": "0x61", "gtrid_length": 1, "bqual_length": 0, "formatID": 1}
    session: Any = Session([row])
    assert list_recovered(session) == {"X61,X,1"}
    session = Session(pymysql.err.OperationalError(1401, "XAER_RMERR"))
    assert list_recovered(session) is None
    session = Session(pymysql.err.OperationalError(2013, "lost"))
    with pytest.raises(pymysql.MySQLError):
        list_recovered(session)


@pytest.mark.parametrize(
    ("version", "in_order"),
    [("10.4.34", True), ("10.5.0", False), ("10.5.22", False), ("10.5.23", True), ("11.4.5", True)],
)
def test_commit_stops_its_tables_on_a_server_that_logs_it_out_of_order(version: str, in_order: bool) -> None:
    ordered = MARIADB_FLAVOUR.logs_xa_in_order(f"{version}-MariaDB")
    assert ordered is in_order
    open_ = {"X61,X,1": PreparedTransaction((CAPTURED, OTHER), PLACE)}
    xa = PreparedXaTransactions(open_, in_order=ordered)
    commit = xa.commit_prepared("X61,X,1", lambda *name: name == CAPTURED)
    assert (commit.place == PLACE) is in_order
    if not in_order:
        assert commit.stop is not None
        assert commit.stop.tables == {CAPTURED}
        assert "MDEV-26652" in str(commit.stop)


class OldMariaDB:
    """A MariaDB before 10.5 whose log is in `file`, with prepared transactions, and `recovered` of them from
    before its start; None: the user may not see that."""

    flavour = MARIADB_FLAVOUR

    def __init__(self, file: str, recovered: int | None, prepared: int = 1) -> None:
        self._end, self._recovered, self._prepared = (file, 4), recovered, prepared
        self.session = self.server = self

    def log_end(self) -> tuple[str, int]:
        return self._end

    def run_query(self, sql: str) -> Any:
        if sql == "XA RECOVER":
            row = {"data": b"a", "gtrid_length": 1, "bqual_length": 0, "formatID": 1}
            return [row] * self._prepared
        assert "innodb_trx" in sql
        return [{"found": self._recovered or 0}]

    def read_grants(self) -> list[str]:
        right = "USAGE" if self._recovered is None else "PROCESS"
        return [f"GRANT {right} ON *.* TO `u`@`%`"]


@pytest.mark.parametrize(
    ("version", "file", "recovered", "prepared", "refused"),
    [
        ("10.1.23-MariaDB", "b.000002", 1, 1, True),
        ("10.4.34-MariaDB", "b.000002", None, 1, True),
        ("10.4.34-MariaDB", "b.000002", None, 0, False),  # nothing is prepared
        ("10.1.23-MariaDB", "b.000002", 0, 1, False),  # a living session has prepared it
        ("10.1.23-MariaDB", "b.000001", 1, 1, False),  # the server has run since capture asked
        ("10.5.0-MariaDB", "b.000002", 1, 1, False),  # it logs PREPARE
    ],
)
def test_recovered_transactions_that_are_not_logged_refuse_a_start(
    version: str, file: str, recovered: int | None, prepared: int, refused: bool
) -> None:
    catalog: Any = OldMariaDB(file, recovered, prepared)
    if not refused:
        require_logged_xa(catalog, version, "b.000001")
        return
    for captured in ("b.000001", None):
        with pytest.raises(SourceRefusedError, match=r"prepared XA transactions \(X61,X,1\)"):
            require_logged_xa(catalog, version, captured)


def reported(recovered: RecoveredXa, prepared: dict[str, PreparedPlace]) -> list[str]:
    """Read a log of two transactions; returns the XIDs that are reported as lost."""
    written = Log("binlog.000009")
    for _ in range(2):
        written.gtid()
        written.query("BEGIN")
        written.xid()
    record = StoredPosition(
        source="s", gen=1, epoch=0, file="binlog.000009", pos=4, ts_ms=7, prepared_at=prepared,
        identity=Identity(server_uuid=None, server_id=1, version="9", gtid_set=None),
        prepared=dict.fromkeys(prepared, ()),
    )  # fmt: skip
    events = SeekableLog(written.events, 3)
    opened = BinlogLog(
        MYSQL_FLAVOUR, record, lambda *_: False, lambda _, file, pos: events.connect(file, pos),
        TransactionBuffer(lambda *_: False), recovered=recovered,
    )  # fmt: skip
    with structlog.testing.capture_logs() as logs:
        for _ in range(6):
            list(opened.read_changes(0))
            for each in logs:
                assert opened.point[1] >= recovered.after[1], "not before the log is read up to there"
                assert "XA ROLLBACK" in each["remedy"]
    return [each["xid"] for each in logs if each["event"].startswith("prepared xa transaction unknown")]


def test_capture_reports_a_lost_transaction_once_it_has_read_the_log() -> None:
    early = {"X61,X,1": replace(PLACE, file="binlog.000008")}
    assert reported(RecoveredXa((9, 4), frozenset(), (9, 150)), early) == ["X61,X,1"]
    assert reported(RecoveredXa((9, 4), frozenset(early), (9, 150)), early) == []
    assert reported(RecoveredXa((8, 399), frozenset(), (9, 4)), early) == [], "it was prepared meanwhile"
    assert reported(RecoveredXa((9, 4), frozenset(), (9, 9999)), early) == [], "the log is not read so far"
