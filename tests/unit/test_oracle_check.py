"""`check` of an Oracle as source and as target, at the driver's seam: which right or version is missing, and
the statement that gives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from consumer.errors import TargetConfigError
from consumer.targets.checks.table_findings import check_session, report_missing_rights
from consumer.targets.oracle.dialect import open_sql_session
from producer.errors import SourceRefusedError
from producer.sources.oracle.log import PollPace
from producer.sources.oracle.session import OracleDriver
from producer.sources.oracle.source import OracleSource
from schemas.config.model import SourceConfig, TargetConfig
from schemas.errors import ServerConnectError
from tests.stands.oracle_on_h2 import driver_error

NAMES = {942: "table or view does not exist", 1031: "insufficient privileges"}


class RefusalError(Exception):
    """An error of the driver, as far as capture looks at it."""

    def __init__(self, number: int, what: str) -> None:
        self._said = f"ORA-{number:05}: {NAMES[number]}"
        super().__init__(SimpleNamespace(code=number))
        self.what = what

    def __str__(self) -> str:
        return self._said


Answers = dict[str, list[tuple[object, ...]]]
#: What the catalog of a server answers that has everything capture wants: beginning of a statement → its
#: rows.
GOOD: Answers = {
    "SELECT VERSION FROM PRODUCT": [("19.0.0.0.0",)],
    "SELECT TO_CHAR(DBID)": [("7", "1", "PDB1")],
    "SELECT COUNT(*) FROM GV$INSTANCE": [(1,)],
    "SELECT OWNER, TABLE_NAME FROM ALL_TABLES": [("BANK", "ACCT"), ("BANK", "MLOG$_ACCT")],
    "SELECT LOG_OWNER": [("BANK", "ACCT", "MLOG$_ACCT", "YES", "YES", "YES", "NO", "NO")],
    "SELECT OWNER, TABLE_NAME, COLUMN_NAME": [
        ("BANK", table, name, "NUMBER", 22, 0, 10, 0, "N", "NO", None)
        for table, names in (("ACCT", ("ID", "V")),
         ("MLOG$_ACCT", ("ID", "V", "SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$", "XID$$")))
        for name in names
    ],
    "SELECT C.OWNER": [("BANK", "ACCT", "PK", "P", "ID")],
    "SELECT I.TABLE_OWNER": [], "SELECT B.OWNER": [], "SELECT P.OBJECT_OWNER": [], "SELECT COUNT(*)": [(0,)],
    "DELETE FROM": [],
}  # fmt: skip


class RefusingOracle:
    """A connection and its cursors at once. `refused`: part of a statement → number of its error."""

    def __init__(self, answers: Answers, refused: dict[str, int]) -> None:
        self._answers, self._refused = answers, refused
        self._rows: list[tuple[object, ...]] = []
        self.rowcount = 0

    def cursor(self) -> RefusingOracle:
        return self

    def execute(self, text: str, _binds: Sequence[object] = ()) -> None:
        for part, number in self._refused.items():
            if part in text:
                raise RefusalError(number, text)
        starts = [start for start in self._answers if text.startswith(start)]
        self._rows = self._answers[max(starts, key=len)]

    def executemany(self, text: str, _rows: Sequence[object]) -> None:
        self.execute(text)

    def fetchall(self) -> list[tuple[object, ...]]:
        return self._rows

    def commit(self) -> None: ...
    def rollback(self) -> None: ...
    def close(self) -> None: ...


def source(connect: Callable[[], Any]) -> OracleSource:
    config = SourceConfig.model_validate({
        "type": "oracle", "host": "h", "port": 1521, "database": "PDB1", "user": "rowlock", "password": "p",
        "tables": ["BANK.*"],
    })  # fmt: skip
    pace = PollPace(5, 0.0, lambda: 0.0, lambda _seconds: None)
    return OracleSource(config, "core", OracleDriver(connect, RefusalError), pace)


def found(refused: dict[str, int], answers: Answers | None = None) -> list[tuple[str, str, str]]:
    findings, _ = source(lambda: RefusingOracle({**GOOD, **(answers or {})}, refused)).check_source()
    return [(each.place, each.message, each.remedy) for each in findings]


MISSING = "Oracle refuses: ORA-00942: table or view does not exist"
DENIED = "Oracle refuses: ORA-01031: insufficient privileges"
TABLE = "source core, table BANK.ACCT"
ALL_OF_THE_TABLE = (
    'GRANT CREATE SESSION TO "ROWLOCK"; GRANT SELECT ON SYS.V_$DATABASE TO "ROWLOCK"; GRANT SELECT ON '
    'SYS.GV_$INSTANCE TO "ROWLOCK"; GRANT SELECT ON "BANK"."ACCT" TO "ROWLOCK"; GRANT SELECT, DELETE ON '
    '"BANK"."MLOG$_ACCT" TO "ROWLOCK"'
)


def test_a_server_as_it_should_be_has_no_findings() -> None:
    assert found({}) == []


@pytest.mark.parametrize(
    ("refused", "findings"),
    [
        ({"V$DATABASE": 942}, [("source core", MISSING, 'GRANT SELECT ON SYS.V_$DATABASE TO "ROWLOCK"')]),
        ({"GV$INSTANCE": 942}, [("source core", MISSING, 'GRANT SELECT ON SYS.GV_$INSTANCE TO "ROWLOCK"')]),
        (
            {"V$DATABASE": 942, "GV$INSTANCE": 942},
            [
                ("source core", MISSING, 'GRANT SELECT ON SYS.V_$DATABASE TO "ROWLOCK"'),
                ("source core", MISSING, 'GRANT SELECT ON SYS.GV_$INSTANCE TO "ROWLOCK"'),
            ],
        ),
        ({'SELECT COUNT(*) FROM "BANK"."ACCT"': 1031}, [(TABLE, DENIED, ALL_OF_THE_TABLE)]),
        ({'SELECT COUNT(*) FROM "BANK"."MLOG$_ACCT"': 942}, [(TABLE, MISSING, ALL_OF_THE_TABLE)]),
        ({'DELETE FROM "BANK"."MLOG$_ACCT"': 1031}, [(TABLE, DENIED, ALL_OF_THE_TABLE)]),
    ],
)  # fmt: skip
def test_a_missing_grant_is_named_with_the_statement_that_gives_it(
    refused: dict[str, int], findings: list[tuple[str, str, str]]
) -> None:
    assert found(refused) == findings


@pytest.mark.parametrize(("version", "refused"), [
    ("11.2.0.4.0", True), ("12.1.0.1.0", False), ("9.2.0.8.0", True), ("12.0.9.0.0", True), ("23.4.0.24.05", False), ("", True),  # noqa: E501
])  # fmt: skip
def test_a_server_that_is_too_old_is_refused(version: str, refused: bool) -> None:
    rows: list[tuple[object, ...]] = [(version,)] if version else []
    reported = [("source core", f"the server is Oracle {version or '?'}", "12.1 or later is needed")]
    answers: Answers = {"SELECT VERSION FROM PRODUCT": rows}
    assert found({}, answers) == (reported if refused else [])
    made = source(lambda: RefusingOracle({**GOOD, **answers}, {}))
    if refused:
        with pytest.raises(SourceRefusedError, match=r"the server is Oracle .*12\.1 or later is needed"):
            made.require_usable()
    else:
        made.require_usable()


def test_capture_does_not_start_without_a_grant_and_names_it() -> None:
    with pytest.raises(SourceRefusedError, match=r'GRANT SELECT ON SYS\.V_\$DATABASE TO "ROWLOCK"'):
        source(lambda: RefusingOracle(GOOD, {"V$DATABASE": 942})).require_usable()


def test_tables_that_the_user_does_not_see_are_told_with_the_grant_that_shows_them() -> None:
    [(_, message, remedy)] = found({}, {"SELECT OWNER, TABLE_NAME FROM ALL_TABLES": []})
    assert message == "no table matches BANK.* yet"
    assert "grant SELECT on them" in remedy


def test_a_log_that_the_user_does_not_see_is_asked_for_as_one_that_is_not_there() -> None:
    findings, _ = source(lambda: RefusingOracle({**GOOD, "SELECT LOG_OWNER": []}, {})).check_source()
    [finding] = findings
    assert "no materialized view log, or the user may not see it" in finding.message
    assert finding.remedy.startswith('CREATE MATERIALIZED VIEW LOG ON "BANK"."ACCT"')


def of_log(*options: str, columns: Sequence[str] = ("ID", "V"), more: Answers | None = None) -> Answers:
    """Return answers where the log has these options (PRIMARY KEY, SEQUENCE, new values, COMMIT SCN, staging)
    and columns."""
    own = [row for row in GOOD["SELECT OWNER, TABLE_NAME, COLUMN_NAME"] if row[1] == "ACCT"]
    hidden = ("SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$", "XID$$")
    logged: list[tuple[object, ...]] = [
        ("BANK", "MLOG$_ACCT", name, "NUMBER", 22, 0, 10, 0, "N", "NO", None) for name in (*columns, *hidden)
    ]
    return {
        "SELECT LOG_OWNER": [("BANK", "ACCT", "MLOG$_ACCT", *options)],
        "SELECT OWNER, TABLE_NAME, COLUMN_NAME": [*own, *logged],
        **(more or {}),
    }


YES, NO = "YES", "NO"
GOOD_LOG = (YES, YES, YES, NO, NO)
WANTED = (
    'CREATE MATERIALIZED VIEW LOG ON "BANK"."ACCT" WITH PRIMARY KEY, SEQUENCE ("V") '
    "INCLUDING NEW VALUES in its place"
)
EXCLUDE = (
    'exclude the table (append "!BANK.ACCT" to the source\'s `tables`; while rowlock runs, also rowlock '
    "reload)"
)
LOB_TOO: Answers = {
    "SELECT OWNER, TABLE_NAME, COLUMN_NAME": [*GOOD["SELECT OWNER, TABLE_NAME, COLUMN_NAME"],
    ("BANK", "ACCT", "SCAN", "BLOB", 4000, 0, None, None, "Y", "NO", None)]
}  # fmt: skip


@pytest.mark.parametrize(("answers", "level", "message", "remedy"), [
    (of_log(NO, YES, YES, NO, NO), "error", "MLOG$_ACCT lacks PRIMARY KEY", WANTED),
    (of_log(YES, NO, YES, NO, NO), "error", "MLOG$_ACCT lacks SEQUENCE", WANTED),
    (of_log(YES, YES, NO, NO, NO), "error", "MLOG$_ACCT lacks INCLUDING NEW VALUES", WANTED),
    (of_log(NO, NO, NO, NO, NO), "error", "MLOG$_ACCT lacks PRIMARY KEY, SEQUENCE, INCLUDING NEW VALUES", WANTED),  # noqa: E501
    (of_log(*GOOD_LOG, columns=["V"]), "error", "MLOG$_ACCT lacks column ID", WANTED),
    (of_log(YES, YES, YES, NO, YES), "error", "MLOG$_ACCT is a staging log (FOR SYNCHRONOUS REFRESH)", f"{EXCLUDE}, or drop that log"),  # noqa: E501
    (of_log(*GOOD_LOG, columns=["ID"]), "warning", "its log MLOG$_ACCT has keys only", "no action if that is acceptable"),  # noqa: E501
    (
        LOB_TOO,
        "warning",
        "materialized view logs do not contain SCAN",
        f"no action if that is acceptable; otherwise {EXCLUDE}",
    ),
    ({"SELECT B.OWNER": [("BANK", "ACCT", "SALES_MV", 3)]}, "error", ("other materialized views "
    "use its log too (SALES_MV)"), f"drop them, or {EXCLUDE}"),
    ({"SELECT B.OWNER": [("BANK", "ACCT", None, 3)]}, "error", "MVIEW_ID 3, which is not registered", f"drop them, or {EXCLUDE}"),  # noqa: E501
    ({"SELECT COUNT(*) FROM GV$INSTANCE": [(2,)]}, "error", "several instances (RAC) write its log", WANTED.replace("SEQUENCE", "SEQUENCE, COMMIT SCN")),  # noqa: E501
    ({"SELECT P.OBJECT_OWNER": [("BANK", "ACCT", "BRANCH")]}, "error", ("row level policies (BRANCH) "
    "may hide rows of it"), "GRANT EXEMPT ACCESS POLICY"),
    ({"SELECT C.OWNER": []}, "error", "it has no primary key", f"{EXCLUDE}, or change it"),
])  # fmt: skip
def test_each_thing_that_is_wrong_with_a_table_is_said_with_its_remedy(
    answers: Answers, level: str, message: str, remedy: str
) -> None:
    findings, tables = source(lambda: RefusingOracle({**GOOD, **answers}, {})).check_source()
    [finding] = findings
    assert (finding.level, finding.place, tables) == (level, TABLE, [("BANK", "ACCT")])
    assert message in finding.message
    assert remedy in finding.remedy


@pytest.mark.parametrize(("answers"), [
    of_log(*GOOD_LOG),  # a timestamp log
    of_log(YES, YES, YES, YES, NO),  # WITH COMMIT SCN
    of_log(YES, YES, YES, YES, NO, more={"SELECT COUNT(*) FROM GV$INSTANCE": [(2,)]}),
])  # fmt: skip
def test_logs_of_both_kinds_are_accepted(answers: Answers) -> None:
    assert found({}, answers) == []


@pytest.mark.parametrize("transient", [True, False])
def test_a_server_that_lets_nobody_in_is_a_finding(transient: bool) -> None:
    def connect() -> Any:
        raise ServerConnectError(
            "cannot connect to Oracle as x", "user or password is wrong", transient=transient
        )

    findings, tables = source(connect).check_source()
    assert [(each.level, each.message, each.remedy) for each in findings] == [
        ("error", "cannot connect to Oracle as x", "user or password is wrong")
    ]
    assert tables is None


# --- the target

TARGET = TargetConfig(
    type="oracle", host="h", port=1521, user="rowlock", password=SecretStr("x"), database="S"
)
HAS: Answers = {
    "SELECT SYS_CONTEXT('USERENV', 'INSTANCE')": [(1,)],
    "SELECT SYS_CONTEXT('USERENV', 'SESSION_USER')": [("ROWLOCK",)],
    "SELECT privilege": [("CREATE SESSION",), ("CREATE TABLE",), ("CREATE SEQUENCE",)],
    "SELECT owner, table_name": [("BANK", "ACCT")],
    "\nSELECT DISTINCT table_schema": [("BANK", "ACCT", right) for right in ("SELECT", "INSERT", "UPDATE",
     "DELETE")],
    "\nSELECT DISTINCT b.inst_id": [],
}  # fmt: skip


class Target(RefusingOracle):
    session_id, serial_num, description, autocommit, call_timeout = 7, 9, [("X",)], False, 0

    def __init__(self, answers: Answers, refused: dict[str, str], version: str = "19.3.0.0.0") -> None:
        super().__init__(answers, {})
        self.version, self._codes = version, refused

    def cursor(self) -> Target:
        return self

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, text: str, _binds: Sequence[object] = ()) -> None:
        for part, code in self._codes.items():
            if part in text:
                raise driver_error(code, "as told")
        super().execute(text)


def of_target(
    answers: Answers, refused: dict[str, str] | None = None, **more: Any
) -> list[tuple[str, str, str]]:
    """Return what `check` says of a target with the table BANK.ACCT, as rowlock/inspect/check.py asks it."""
    session = open_sql_session(TARGET, "t", lambda *_, **__: Target({**HAS, **answers}, refused or {}))
    place = ("bank", "acct")
    alter = [place] if more.get("alter") else []
    missing = session.find_missing_rights(
        [place], create=True, alter=alter, drop=[place] if more.get("drop") else []
    )
    findings = [*check_session(session, "target t"), *report_missing_rights(missing, "target t")]
    return [(each.place, each.message, each.remedy) for each in findings]


def test_a_target_as_it_should_be_has_no_findings() -> None:
    assert of_target({}) == []


@pytest.mark.parametrize(
    ("answers", "refused", "more", "message", "remedy"),
    [
        ({}, {"blocking_session": "ORA-00942"}, {}, ("to end a dead worker's connection "
        "rowlock must see who holds a lock"), 'GRANT SELECT ON SYS.GV_$SESSION TO "ROWLOCK";'),
        ({"SELECT privilege": [("CREATE SESSION",)]}, {}, {}, ("user ROWLOCK lacks CREATE "
        "TABLE and CREATE SEQUENCE"), 'GRANT CREATE TABLE, CREATE SEQUENCE TO "ROWLOCK";'),
        ({"SELECT owner, table_name": []}, {}, {}, ("may not create tables of other schemas, or "
        "does not see them (BANK.ACCT)"), 'GRANT CREATE ANY TABLE, CREATE ANY INDEX TO "ROWLOCK";'),
        ({"\nSELECT DISTINCT table_schema": [("BANK", "ACCT", "SELECT")]}, {}, {}, "lacks INSERT, UPDATE, DELETE on BANK.ACCT", ('GRANT '  # noqa: E501
        'INSERT, UPDATE, DELETE ON "BANK"."ACCT" TO "ROWLOCK";')),
        ({}, {}, {"alter": True}, "lacks ALTER on BANK.ACCT", 'GRANT ALTER ON "BANK"."ACCT" TO "ROWLOCK";'),
        ({}, {}, {"drop": True}, "lacks DROP on BANK.ACCT", 'GRANT DROP ANY TABLE TO "ROWLOCK";'),
    ],
)  # fmt: skip
def test_a_right_that_the_targets_user_lacks_is_named(
    answers: Answers, refused: dict[str, str], more: dict[str, bool], message: str, remedy: str
) -> None:
    [(place, seen, what_to_do)] = of_target(answers, refused, **more)
    assert (place, what_to_do) == ("target t", remedy)
    assert message in seen


@pytest.mark.parametrize(
    ("version", "refused"),
    [("12.1.0.2.0", True), ("11.2.0.4.0", True), ("12.2.0.1.0", False), ("23.4.0.24.5", False)],
)
def test_a_target_that_is_too_old_is_refused_before_anything_is_written(version: str, refused: bool) -> None:
    def connect(*_: object, **__: object) -> Any:
        return Target(HAS, {}, version)

    if not refused:
        open_sql_session(TARGET, "t", connect).close()
        return
    with pytest.raises(
        TargetConfigError, match=rf"Oracle at h:1521/S is {version}: 12\.2 or later is needed"
    ):
        open_sql_session(TARGET, "t", connect)
