"""The link to Oracle over a driver that fails as the test decides: what each error is to the consumer, and
what is taken back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import oracledb
import pytest
from pydantic import SecretStr

from consumer.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConsumerError,
    LockWaitError,
    MissingGrantError,
    RefusedError,
    TableMissingError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.targets.oracle.connection import OracleLink
from consumer.targets.oracle.errors import REMEDIES, get_error_class
from consumer.targets.oracle.locks import encode_connection_id
from schemas.config.model import TargetConfig
from schemas.errors import ServerConnectError
from schemas.io.oracle_connection import open_oracle
from tests.real_oracle import RealOracle
from tests.stands.oracle_on_h2 import driver_error

TARGET = TargetConfig(
    type="oracle", host="h", port=1521, user="rowlock", password=SecretStr("x"), database="S"
)


class Driver:
    """A connection and its cursors at once. `fails`: text that a statement begins with → code of its
    error."""

    version, session_id, serial_num, rowcount, description = "19.0.0.0.0", 7, 9, 1, None

    def __init__(self, **fails: str) -> None:
        self.fails = {name.replace("_", " "): code for name, code in fails.items()}
        self.sent: list[str] = []
        self.batch_errors: list[str] = []
        self.autocommit = False
        self.call_timeout = 0
        self.closed = False

    def cursor(self) -> Driver:
        return self

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None: ...

    def _said(self, text: str) -> None:
        self.sent.append(text)
        for start, code in self.fails.items():
            if text.strip().startswith(start):
                raise driver_error(code, f"as told, of {text[:20]}")

    def execute(self, text: str, params: object = ()) -> None:
        self._said(text)
        self.description = [("X",)] if text.lstrip().startswith("SELECT") else None

    def executemany(
        self, text: str, rows: list[Any], *, batcherrors: bool = False, arraydmlrowcounts: bool = False
    ) -> None:
        assert batcherrors == arraydmlrowcounts, "else the first row that fails ends the array"
        self._said(text)
        self.sent.append(f"{len(rows)} rows")

    def setinputsizes(self, *_: object) -> None: ...

    def fetchall(self) -> list[tuple[object, ...]]:
        return [(1, 2, 3)] if "blocking_session" in self.sent[-1] else [(1,)]

    def getbatcherrors(self) -> list[Any]:
        return [SimpleNamespace(full_code=code, message=f"{code}: told") for code in self.batch_errors]

    def getarraydmlrowcounts(self) -> list[int]:
        return [1, 0]

    def commit(self) -> None:
        self._said("COMMIT")

    def rollback(self) -> None:
        self._said("ROLLBACK")

    def close(self) -> None:
        self.closed = True


def linked(driver: Driver) -> OracleLink:
    link = OracleLink(TARGET, "t", lambda *_, **__: driver)
    link.connect()
    driver.sent.clear()
    return link


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ORA-00001", UniqueViolationError), ("ORA-02299", UniqueViolationError), ("ORA-00955", AlreadyExistsError),  # noqa: E501
        ("ORA-00054", LockWaitError), ("ORA-30006", LockWaitError), ("DPY-4024", LockWaitError), ("ORA-12899", RefusedError),  # noqa: E501
        ("ORA-01400", RefusedError), ("ORA-01438", RefusedError), ("ORA-02291", RefusedError), ("ORA-00942", TableMissingError),  # noqa: E501
        ("ORA-01450", TargetConfigError), ("ORA-01792", TargetConfigError), ("ORA-01793", TargetConfigError), ("ORA-00910", TargetConfigError),  # noqa: E501
        ("ORA-00904", TargetConfigError), ("ORA-01031", TargetConfigError), ("ORA-01950", TargetConfigError), ("ORA-00060", TransientError),  # noqa: E501
        ("ORA-03113", TransientError), ("DPY-4011", TransientError), ("ORA-99999", TransientError), ("", TransientError),  # noqa: E501
    ],
)  # fmt: skip
def test_what_an_error_is(code: str, kind: type[ConsumerError]) -> None:
    assert get_error_class(code) is kind
    with pytest.raises(kind) as caught:
        linked(Driver(UPDATE=code)).execute("UPDATE t SET x = %s", [1])
    assert caught.type is kind
    assert "Oracle at h:1521/S: as told, of UPDATE" in str(caught.value)


def test_every_remedy_is_of_an_error_that_asks_for_one() -> None:
    assert [
        code for code in REMEDIES if not issubclass(get_error_class(code), RefusedError | TargetConfigError)
    ] == []


def test_a_lost_connection_is_let_go_and_made_anew() -> None:
    link = linked(lost := Driver(UPDATE="ORA-03113"))
    with pytest.raises(TransientError):
        link.execute("UPDATE t SET x = 1", [])
    assert lost.closed
    with pytest.raises(TransientError, match="is lost"):
        link.get_connection_id()
    link.connect()
    assert link.get_connection_id() == encode_connection_id(1, 7, 9)


@pytest.mark.parametrize(
    ("code", "kind"),
    [("DPY-4011", CommitUnknownError), ("DPY-4024", CommitUnknownError), ("ORA-02091", TransientError)],
)
def test_a_commit_without_an_answer_is_of_unknown_outcome(code: str, kind: type[ConsumerError]) -> None:
    link = linked(driver := Driver(COMMIT=code))
    with pytest.raises(kind) as caught:
        link.commit()
    assert caught.type is kind
    assert driver.closed == (kind is CommitUnknownError)


def test_statements_commit_by_themselves_outside_of_a_transaction_alone() -> None:
    link = linked(driver := Driver())
    assert driver.autocommit
    link.begin_transaction(2.4, "SELECT 1 FROM t FOR UPDATE WAIT 10", [])
    assert (driver.autocommit, driver.sent) == (False, ["SELECT 1 FROM t FOR UPDATE WAIT 2"])
    link.commit()
    assert driver.autocommit
    link.begin_all([("SELECT 1 FROM t", [])])
    link.roll_back()
    assert driver.autocommit
    driver.fails["ROLLBACK"] = "DPY-4011"
    link.begin_all([("SELECT 1 FROM t", [])])
    link.roll_back()
    assert driver.closed, "the server rolls back when the connection ends"


def test_values_for_several_rows_are_an_array() -> None:
    link = linked(driver := Driver())
    link.execute("INSERT INTO t (a, b) VALUES (%s, %s)", [1, 2, 3, 4, 5, 6])
    assert driver.sent == ["INSERT INTO t (a, b) VALUES (:1, :2)", "3 rows"]


def test_an_array_that_failed_in_part_is_taken_back_and_the_gravest_failure_raised() -> None:
    link = linked(driver := Driver())
    assert link.execute_array("DELETE …", [[1], [2]], []) == [1, 0]
    driver.sent.clear()
    driver.batch_errors = ["ORA-12899", "ORA-00001", "ORA-12899"]
    with pytest.raises(UniqueViolationError, match=r"ORA-00001, and 2 rows beside it"):
        link.execute_array("INSERT …", [[1], [2], [3]], [])
    assert driver.sent == [
        "SAVEPOINT rowlock_batch",
        "INSERT …",
        "3 rows",
        "ROLLBACK TO SAVEPOINT rowlock_batch",
    ]
    driver.batch_errors = ["ORA-12899", "ORA-00060"]
    with pytest.raises(TransientError) as caught:
        link.execute_array("INSERT …", [[1], [2]], [])
    assert caught.type is TransientError, "what may go away by itself is tried again first"


def test_a_table_that_is_there_is_not_made_and_anything_else_of_its_name_is_told() -> None:
    link = linked(driver := Driver(CREATE_TABLE="ORA-00955"))
    assert link.execute('CREATE TABLE "A"."B" (id NUMBER(10))', []) == []
    assert "ALL_TABLES" in driver.sent[-1]
    driver.fetchall = list  # type: ignore[method-assign]
    with pytest.raises(AlreadyExistsError):
        link.execute('CREATE TABLE "A"."B" (id NUMBER(10))', [])


def test_rights_to_end_a_dead_workers_connection_are_named() -> None:
    link = linked(driver := Driver())
    assert link.locks.end_blockers_of(encode_connection_id(1, 2, 3)) == [encode_connection_id(1, 2, 3)]
    assert driver.sent[-1] == "ALTER SYSTEM KILL SESSION '2,3,@1' IMMEDIATE"
    driver.fails["ALTER SYSTEM"] = "ORA-01031"
    with pytest.raises(MissingGrantError, match='GRANT ALTER SYSTEM TO "ROWLOCK"'):
        link.locks.end_blockers_of(encode_connection_id(1, 2, 3))
    driver.fails = {"ALTER SYSTEM": "ORA-00030"}
    assert link.locks.end_blockers_of(encode_connection_id(1, 2, 3)) == [], "it ended by itself"
    driver.fails = {"ALTER SYSTEM": "ORA-00031"}
    assert link.locks.end_blockers_of(encode_connection_id(1, 2, 3)) == [encode_connection_id(1, 2, 3)], (
        "it is marked to be killed"
    )
    assert not driver.closed
    driver.fails = {"SELECT DISTINCT b.inst_id": "ORA-00942"}
    with pytest.raises(MissingGrantError, match=r"GRANT SELECT ON SYS.GV_\$SESSION TO \"ROWLOCK\""):
        link.locks.end_blockers_of(encode_connection_id(1, 2, 3))


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real driver, and by what its listener answers."""
    with pytest.raises(ServerConnectError, match="nothing answers there") as caught:
        open_oracle(TARGET.model_copy(update={"host": "127.0.0.1", "port": 1}))
    assert caught.value.transient

    def refuses(**_: object) -> None:
        raise driver_error("ORA-01017", "invalid credential or not authorized; logon denied")

    monkeypatch.setattr(oracledb, "connect", refuses)
    with pytest.raises(
        ServerConnectError,
        match=r"as rowlock@h:1521/S: .*logon denied \(ORA-01017\): correct the user or the password",
    ) as caught:
        open_oracle(TARGET)
    assert not caught.value.transient


def test_the_tests_own_server_is_named_whole_and_its_user_is_one_for_tests() -> None:
    found = RealOracle.of("rowlock_test1/p@ss/w@db.example:1521/FREEPDB1")
    assert found == RealOracle("rowlock_test1", "p@ss/w", "db.example", 1521, "FREEPDB1")
    with pytest.raises(ValueError, match="begins with ROWLOCK_TEST"):
        RealOracle.of("bank/x@h:1521/S")
    with pytest.raises(ValueError, match="user/password@host:port/service"):
        RealOracle.of("")
