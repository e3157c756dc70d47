"""Replaces python-oracledb where H2 replaces Oracle: it has as much of its interface as the dialect uses.

Statements reach H2 as the dialect wrote them, but for the phrases of PHRASES; H2's errors come back as the
ORA numbers of ERRORS.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import oracledb

from consumer.targets.dialect import Dialect
from consumer.targets.oracle.dialect import open_sql_session
from consumer.targets.session import SqlSession
from deploy.fetch.downloads import fetch_h2_jar
from schemas.config.kinds.targets import TargetKind
from schemas.config.model import TargetConfig
from schemas.io import oracle_connection
from tests.servers.h2_server import CATALOGUE, PASSWORD, USER

#: (what Oracle has and H2 has not, what H2 is sent, why it means the same).
PHRASES: tuple[tuple[str, str, str], ...] = (
    (r"WITH LOCAL TIME ZONE", "WITH TIME ZONE", "sessions are in UTC, so both show the same instant"),
    (r"NUMBER\(\*,0\)", "SYS.ORA_INTEGER",
     "a type of its own, so that the catalogue tells it from NUMBER(38,0)"),
    (r"(?<=\") DATE(?= NOT NULL|,|\)| DEFAULT)", " SYS.ORA_DATE",
     "a type of its own, so that the catalogue tells it from TIMESTAMP(0)"),
    (r"SYS_CONTEXT\('USERENV', 'INSTANCE'\)", "1", "there is one instance"),
    (r"SYS_CONTEXT\('USERENV', 'SESSION_USER'\)", "CURRENT_USER", "another name"),
    (r"^ALTER SYSTEM KILL SESSION '(\d+),.*$", r"SELECT ABORT_SESSION(\1)", "another name"),
    (r"^ALTER SESSION SET DDL_LOCK_TIMEOUT = (\d+)$", r"SET LOCK_TIMEOUT \g<1>000",
     "one limit for all locks"),
    (r" CASCADE CONSTRAINTS$", "", "H2 takes the column out of the way by itself, or refuses"),
    (r"^(ALTER TABLE .*) MODIFY \((\"[^\"]*\") DEFAULT NULL\)$", r"\1 ALTER COLUMN \2 DROP DEFAULT",
     "another name"),
    (r"^(CREATE UNIQUE) (INDEX .* ON \S+) \(CASE .*\)$", r"\1 NULLS DISTINCT \2 ({columns})",
     "rows with a NULL never collide"),
    (r"NUMTODSINTERVAL\(([-\d.]+), 'SECOND'\)", r"(INTERVAL '1' SECOND * \1)", "another name"),
)  # fmt: skip
ERRORS = {
    23505: "ORA-00001", 22001: "ORA-12899", 22003: "ORA-01438", 22004: "ORA-01438", 23502: "ORA-01400",
    22018: "ORA-01722", 42101: "ORA-00955", 42111: "ORA-00955", 42102: "ORA-00942", 42103: "ORA-00942",
    42104: "ORA-00942", 42122: "ORA-00904", 40001: "ORA-00060", 90067: "DPY-4011", 90098: "DPY-4011",
    90007: "DPY-4011", 90121: "DPY-4011", 23506: "ORA-02291", 23503: "ORA-02292", 23513: "ORA-02290",
    57014: "ORA-01013", 90131: "ORA-08177", 28000: "ORA-01017", 90146: "DPY-6001", 90149: "DPY-6001",
    90107: "ORA-02449", 22007: "ORA-01861", 90083: "ORA-12991", 22025: "ORA-01438", 90106: "ORA-02266",
}  # fmt: skip
LOCK_TIMEOUT = 50200
#: Names a file to which each process writes what H2 has executed of it, as the dialect wrote it, once each
#: and ended by "\0".
RECORD = "ROWLOCK_H2_RECORD"
_recorded: set[str] = set()
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|:(\d+)")
_CASES = re.compile(r"CASE WHEN .*? THEN (\"[^\"]*\") END")


def java() -> Any:
    """Return jpype with its machine running: one a process, started when somebody first connects."""
    import jpype
    import jpype.imports

    if not jpype.isJVMStarted():
        jpype.startJVM(
            "-Xrs", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
            "-Duser.timezone=UTC", classpath=[str(fetch_h2_jar())], convertStrings=True,
        )  # fmt: skip
    return jpype


def phrased(text: str) -> str:
    """Return a statement of Oracle's as H2 takes it."""
    reported = _QUOTED.sub(lambda match: match[0] if match[1] is None else f"?{match[1]}", text)
    for pattern, other, _why in PHRASES:
        reported = re.sub(pattern, other, reported)
    return reported.replace("{columns}", ", ".join(_CASES.findall(text)))


def _record(text: str) -> None:
    if (file := os.environ.get(RECORD)) and text not in _recorded:
        _recorded.add(text)
        with Path(file).open("ab") as out:
            out.write(f"{text}\0".encode())


def driver_error(code: str, message: str) -> oracledb.DatabaseError:
    """Return an error as the driver raises it."""
    return oracledb.DatabaseError(
        SimpleNamespace(full_code=code, message=f"{code}: {message}", isrecoverable=False, code=0)
    )


def _translated(error: Any, text: str) -> oracledb.DatabaseError:
    number = int(error.getErrorCode())
    message = str(error.getMessage()).partition("; SQL statement")[0]
    if number == LOCK_TIMEOUT:
        waits = (
            "ORA-30006"
            if "FOR UPDATE WAIT" in text
            else "ORA-00054"
            if text.startswith(("ALTER", "DROP", "CREATE"))
            else "DPY-4024"
        )
        return driver_error(waits, message)
    if number == 23505:
        message = message.partition(" VALUES ")[0]  # Oracle's message has none of the row
        if text.startswith(("CREATE", "ALTER")):
            return driver_error("ORA-01452", message)
    if number not in ERRORS:
        raise AssertionError(
            f"H2's error {number} has no number of Oracle's here: {message} in {text}"
        ) from error
    return driver_error(ERRORS[number], message)


class Connection:
    """`oracledb.Connection`, as far as it is used."""

    serial_num = 1
    version = "23.0.0.0.0"

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._call_timeout = 0
        self.autocommit = False
        with self.cursor() as cursor:
            cursor.execute("SET TIME ZONE '+00:00'")
            [(self.session_id,)] = cursor.execute("SELECT SESSION_ID() FROM dual").fetchall()
            self.session_id = int(self.session_id)

    @property
    def autocommit(self) -> bool:
        return self._autocommit

    @autocommit.setter
    def autocommit(self, on: bool) -> None:
        self._autocommit = on
        self.do("", lambda: self._raw.setAutoCommit(on))

    @property
    def call_timeout(self) -> int:
        return self._call_timeout

    @call_timeout.setter
    def call_timeout(self, millis: int) -> None:
        """The time of a call is the wait for a lock here; a change of a table has a limit of its own for that
        (DDL_LOCK_TIMEOUT)."""
        self._call_timeout = millis
        if millis <= 600_000:
            with self.cursor() as cursor:
                cursor.execute(f"SET LOCK_TIMEOUT {millis}")

    def do(self, text: str, work: Callable[[], Any]) -> Any:
        sql_error = java().JClass("java.sql.SQLException")
        try:
            return work()
        except sql_error as error:
            raise _translated(error, text) from error

    def cursor(self) -> Cursor:
        return Cursor(self)

    def commit(self) -> None:
        self.do("", self._raw.commit)

    def rollback(self) -> None:
        self.do("", self._raw.rollback)

    def close(self) -> None:
        self.do("", self._raw.close)


class Cursor:
    """`oracledb.Cursor`, as far as it is used."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []
        self._failures: list[Any] = []
        self._counts: list[int] = []
        self.description: list[tuple[str, ...]] | None = None
        self.rowcount = 0

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None: ...

    def setinputsizes(self, *_: object) -> None:
        """H2 has the types of its columns."""

    def execute(self, text: str, params: Sequence[object] = ()) -> Cursor:
        self._each(text, [params], batcherrors=False)
        return self

    def executemany(
        self,
        text: str,
        rows: Sequence[Sequence[object]],
        *,
        batcherrors: bool = False,
        arraydmlrowcounts: bool = False,
    ) -> None:
        self._each(text, rows, batcherrors=batcherrors)

    def _each(self, text: str, rows: Sequence[Sequence[object]], *, batcherrors: bool) -> None:
        self._rows, self._failures, self._counts, self.description = [], [], [], None
        raw, do = self._connection._raw, self._connection.do
        statement = do(text, lambda: raw.prepareStatement(phrased(text)))
        try:
            for at, row in enumerate(rows):
                try:
                    do(text, lambda row=row: self._once(statement, row))
                except oracledb.DatabaseError as error:
                    if not batcherrors or error.args[0].full_code.startswith("DPY"):
                        raise
                    error.args[0].offset = at
                    self._failures.append(error.args[0])
                    self._counts.append(0)
        finally:
            do(text, statement.close)
        self.rowcount = sum(self._counts)
        if len(self._failures) < len(rows):
            _record(text)

    def _once(self, statement: Any, row: Sequence[object]) -> None:
        for number, value in enumerate(row, 1):
            _bind(statement, number, value)
        if statement.execute():
            found = statement.getResultSet()
            about = found.getMetaData()
            columns = range(1, about.getColumnCount() + 1)
            self.description = [(str(about.getColumnLabel(at)),) for at in columns]
            kinds = [str(about.getColumnTypeName(at)) for at in columns]
            while found.next():
                self._rows.append(
                    tuple(_read(found, at, kind) for at, kind in zip(columns, kinds, strict=True))
                )
            self._counts.append(len(self._rows))
        else:
            self._counts.append(max(0, int(statement.getUpdateCount())))

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    def getbatcherrors(self) -> list[Any]:
        return self._failures

    def getarraydmlrowcounts(self) -> list[int]:
        return self._counts


def _bind(statement: Any, number: int, value: object) -> None:
    jpype = java()
    if value is None:
        statement.setNull(number, 0)
    elif isinstance(value, bool):
        raise TypeError("no value of a row is a bool")
    elif isinstance(value, int | Decimal):
        statement.setBigDecimal(number, jpype.JClass("java.math.BigDecimal")(str(value)))
    elif isinstance(value, float):
        statement.setDouble(number, value)
    elif isinstance(value, bytes):
        statement.setBytes(number, value)
    elif isinstance(value, datetime.datetime):
        statement.setObject(number, jpype.JClass("java.time.LocalDateTime").parse(value.isoformat()))
    elif isinstance(value, datetime.timedelta):
        micros = value // datetime.timedelta(microseconds=1)
        nanos = abs(micros) % 86_400_000_000 * 1000
        interval = jpype.JClass("org.h2.api.Interval")
        kind = jpype.JClass("org.h2.api.IntervalQualifier").DAY_TO_SECOND
        statement.setObject(number, interval(kind, micros < 0, abs(micros) // 86_400_000_000, nanos))
    else:
        statement.setString(number, str(value))


def _read(found: Any, at: int, kind: str) -> Any:
    if kind.startswith(("BINARY", "RAW")) or kind == "BINARY LARGE OBJECT":
        value = found.getBytes(at)
        return None if value is None else bytes(value)
    if kind.startswith("TIMESTAMP"):
        zoned = "ZONE" in kind
        value = found.getObject(
            at, java().JClass("java.time.OffsetDateTime" if zoned else "java.time.LocalDateTime")
        )
        if value is None:
            return None
        text = str(value.toLocalDateTime() if zoned else value)
        whole, _, fraction = text.partition(".")
        return datetime.datetime.fromisoformat(f"{whole}.{fraction.ljust(6, '0')[:6]}" if fraction else whole)
    value = found.getObject(at)
    if value is None:
        return None
    if kind in ("NUMERIC", "BIGINT", "INTEGER", "SMALLINT", "DECFLOAT"):
        return Decimal(str(value))
    if kind in ("REAL", "DOUBLE PRECISION"):
        return float(value)
    if kind.startswith("INTERVAL"):
        return _duration(value)
    if kind == "CHARACTER LARGE OBJECT":
        return str(found.getString(at))
    return bool(value) if kind == "BOOLEAN" else str(value)


def _duration(value: Any) -> datetime.timedelta:
    seconds = (
        Decimal(value.getDays()) * 86400 + Decimal(value.getHours()) * 3600 + Decimal(value.getMinutes()) * 60
    )
    nanos = int(value.getSeconds()) * 1_000_000_000 + int(value.getNanosOfSecond())
    return datetime.timedelta(seconds=int(seconds), microseconds=nanos // 1000)


def open_on_h2(config: TargetConfig, *, program: str = "rowlock") -> Connection:
    """Stands in for `schemas.io.oracle_connection.open_oracle`."""
    jpype = java()
    properties = jpype.JClass("java.util.Properties")()
    properties.setProperty("user", config.user)
    properties.setProperty("password", config.password.get_secret_value())
    url = f"jdbc:h2:tcp://{config.host}:{config.port}/./{config.database};MODE=Oracle;IFEXISTS=TRUE;SCHEMA={USER}"
    try:
        return Connection(_connected(jpype, url, properties))
    except oracledb.DatabaseError as error:
        raise oracle_connection._explain_connect_error(error, config) from error


def _connected(jpype: Any, url: str, properties: Any) -> Any:
    sql_error = jpype.JClass("java.sql.SQLException")
    try:
        return jpype.JClass("org.h2.Driver")().connect(url, properties)
    except sql_error as error:
        if int(error.getErrorCode()) in (90067, 90028):  # the connection is broken: nobody listens
            raise driver_error("DPY-6005", str(error.getMessage())) from error
        raise _translated(error, "") from error


def make_database(port: int, name: str) -> None:
    """Make a database with Oracle's catalogue and the user's schema."""
    with_connection(port, name, lambda run: run(CATALOGUE), make=True)


def with_connection(
    port: int, name: str, work: Callable[[Callable[[str], None]], None], *, make: bool = False
) -> None:
    """Call `work` with what runs a script of H2's."""
    jpype = java()
    properties = jpype.JClass("java.util.Properties")()
    properties.setProperty("user", USER)
    properties.setProperty("password", PASSWORD)
    exists = "" if make else ";IFEXISTS=TRUE"
    raw = _connected(jpype, f"jdbc:h2:tcp://127.0.0.1:{port}/./{name};MODE=Oracle{exists}", properties)
    try:
        work(lambda script: raw.createStatement().execute(script))
    finally:
        raw.close()


def open_session_on_h2(target: TargetConfig, name: str) -> SqlSession:
    return open_sql_session(target, name, open_on_h2)


ORACLE_ON_H2 = Dialect("oracle on H2", open_session_on_h2)
KIND = TargetKind("tests.stands.oracle_on_h2", "ORACLE_ON_H2")
