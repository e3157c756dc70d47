"""Values that a statement may have changed by its session's settings: what is doubted, what is asked of the
source, and what its answer leads to."""

from __future__ import annotations

import struct
from typing import Any

import pymysql
import pytest

from producer.binlog_format.log_event import LoggedStatement, SessionSettings, parse_query
from producer.sources.converted import may_be_converted
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from producer.statements.conversions import (
    GLOBAL,
    DoubtedValues,
    find_alter_doubt,
    find_swap_doubt,
    is_fixed_zone,
    may_copy,
    treat_optimize_as_alter,
)
from producer.statements.ddl import TableDdl
from producer.statements.statement import Statement, parse_statement
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from tests.kits.barriers import Stage, T

ZONE = SessionSettings(zone="SYSTEM")
ZEROES = SessionSettings(zeroes_dates=True)
PADDED = SessionSettings(padded=True)


def table(**columns: Kind | str) -> Table:
    """Return a table of columns name → kind; a text is the expression of a generated one ("?": it is
    unknown)."""
    made = [
        Column(name=name, type=ColumnType(kind=kind))
        if isinstance(kind, Kind)
        else Column(name=name, type=ColumnType(kind=Kind.VARCHAR), generated=True,
        expression=None if kind == "?" else kind)
        for name, kind in {"id": Kind.INT, **columns}.items()
    ]  # fmt: skip
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    return Table(db="bank", name="t", columns=tuple(made), key=key)


def doubted(
    sql: str, settings: SessionSettings, before: Table, after: Table | None = None
) -> DoubtedValues | None:
    return find_alter_doubt(parse(sql, settings), before, after or before)


def parse(sql: str, settings: SessionSettings | None = None) -> Statement:
    return parse_statement(LoggedStatement("bank", sql, settings=settings or SessionSettings()))


MODIFY = "ALTER TABLE t MODIFY n BIGINT"
TIMES = table(s=Kind.TIMESTAMP, d=Kind.DATETIME, e=Kind.DATE, c=Kind.CHAR, t=Kind.TIME)


def test_times_are_doubted_that_the_statement_took_to_a_zone() -> None:
    found = doubted(
        "ALTER TABLE t ADD INDEX (n)", ZONE, TIMES
    )  # whatever it is: the log says that it read times
    assert found is not None
    assert (found.zone, found.times, found.dates, found.certain) == ("SYSTEM", ("s",), (), False)
    assert doubted(MODIFY, SessionSettings(), TIMES) is None
    assert doubted(MODIFY, ZONE, table(d=Kind.DATETIME)) is None


@pytest.mark.parametrize("zone", ["+08:00", "-11:30", "UTC", "utc", "Etc/UTC", "GMT", "Etc/GMT"])
def test_a_fixed_zone_has_no_hour_twice(zone: str) -> None:
    assert is_fixed_zone(zone)
    assert doubted(MODIFY, SessionSettings(zone=zone), TIMES) is None


@pytest.mark.parametrize(
    "zone", ["SYSTEM", "CST", "CET", "Europe/Berlin", "Asia/Shanghai", "", "Etc/GMT+1 ", GLOBAL]
)
def test_of_other_zones_nobody_knows(zone: str) -> None:
    assert not is_fixed_zone(zone)


@pytest.mark.parametrize("expression", ["concat(`s`)", "?"])
def test_what_is_computed_from_times_is_doubted_in_any_zone(expression: str) -> None:
    found = doubted(MODIFY, SessionSettings(zone="+08:00"), table(S=Kind.TIMESTAMP, g=expression))
    assert found is not None
    assert found.certain
    assert (
        doubted(MODIFY, SessionSettings(zone="+08:00"), table(s=Kind.TIMESTAMP, n=Kind.INT, g="(`n` + 1)"))
        is None
    )


def test_dates_are_doubted_where_the_session_makes_zero_of_them() -> None:
    found = doubted(MODIFY, ZEROES, TIMES)
    assert found is not None
    assert (found.times, found.dates, found.certain) == ((), ("d", "e"), False)
    assert doubted("ALTER TABLE t ADD INDEX (n)", ZEROES, TIMES) is None
    assert doubted(MODIFY, ZEROES, table(s=Kind.TIMESTAMP, t=Kind.TIME)) is None


def test_char_is_doubted_that_loses_its_kind_in_a_session_that_pads() -> None:
    chars = table(c=Kind.CHAR)
    for after in (table(c=Kind.VARCHAR), table(c=Kind.TEXT), table(), table(c=Kind.CHAR, g="lower(`c`)")):
        found = doubted("ALTER TABLE t FORCE", PADDED, chars, after)
        assert found is not None
        assert found.certain
    assert doubted("ALTER TABLE t FORCE", PADDED, chars) is None
    assert doubted("ALTER TABLE t FORCE", PADDED, table(v=Kind.VARCHAR), table(v=Kind.TEXT)) is None


def test_of_a_tool_s_session_nothing_is_known() -> None:
    assert find_swap_doubt(table(), table(n=Kind.INT)) is None
    found = find_swap_doubt(TIMES, table(s=Kind.TIMESTAMP, d=Kind.DATE, c=Kind.VARCHAR))
    assert found is not None
    assert (found.zone, found.times, found.dates, found.unpadded, found.certain) == (
        GLOBAL,
        ("s",),
        ("d",),
        True,
        False,
    )


IN_PLACE = (
    "ADD COLUMN w INT", "ADD INDEX (n)", "ADD UNIQUE (n)", "DROP COLUMN n", "DROP INDEX i",
    "RENAME COLUMN a TO b", "ALTER n SET DEFAULT 1", "COMMENT 'x'", "AUTO_INCREMENT = 7, COMMENT = 'x'",
    "MODIFY n BIGINT, ALGORITHM=INPLACE", "ALGORITHM INSTANT, MODIFY n INT",
    "ADD PARTITION (PARTITION p VALUES LESS THAN (9))", "DEFAULT CHARACTER SET latin1",
)  # fmt: skip
COPYING = (
    "MODIFY n BIGINT", "CHANGE n m BIGINT", "FORCE", "ENGINE=InnoDB", "PARTITION BY HASH (id)",
    "COMMENT 'x' PARTITION BY HASH (id)", "REMOVE PARTITIONING", "CONVERT TO CHARACTER SET utf8mb4",
    "ADD COLUMN g INT AS (n + 1) STORED", "ADD COLUMN w INT, ALGORITHM=COPY",
    "ALGORITHM = COPY, ADD INDEX (n)", "DROP PRIMARY KEY, ADD INDEX (n)", "ORDER BY n", "ADD CHECK (n > 0)",
    "ROW_FORMAT=COMPRESSED", "ADD COLUMN w INT, FORCE",
)  # fmt: skip


@pytest.mark.parametrize("action", IN_PLACE)
def test_what_is_done_in_place(action: str) -> None:
    assert not may_copy(parse(f"ALTER TABLE t {action}"))


@pytest.mark.parametrize("action", COPYING)
def test_what_copies_rows(action: str) -> None:
    assert may_copy(parse(f"ALTER TABLE t {action}"))


def test_an_index_statement_copies_where_it_says_so() -> None:
    assert not may_copy(parse("CREATE INDEX i ON t (n)"))
    assert may_copy(parse("CREATE INDEX i ON t (n) ALGORITHM = COPY"))


def test_a_statement_without_actions_may_copy_rows() -> None:
    assert may_copy(parse("RENAME TABLE u TO t"))
    assert may_copy(parse("RENAME TABLES u TO t"))


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("OPTIMIZE TABLE t", [("bank", "t")]),
        ("/* x */ optimize local tables other.t, `u`", [("other", "t"), ("bank", "u")]),
        ("OPTIMIZE NO_WRITE_TO_BINLOG TABLE t", [("bank", "t")]),
        ("ANALYZE TABLE t", None),
        ("OPTIMIZE", None),
    ],
)
def test_optimize_is_an_alter_of_its_tables(sql: str, tables: list[tuple[str, str]] | None) -> None:
    found = treat_optimize_as_alter(parse(sql))
    assert ([*found.kind.tables] if isinstance(found.kind, TableDdl) else None) == tables
    if tables is not None:
        assert may_copy(found)


# --- the log


def query(*, mode: int | None = None, zone: bytes = b"") -> LoggedStatement:
    status = b"" if mode is None else b"\x01" + struct.pack("<Q", mode)
    status += b"\x05" + bytes([len(zone)]) + zone if zone else b""
    return parse_query(struct.pack("<IIBHH", 1, 0, 4, 0, len(status)) + status + b"bank\0ALTER TABLE t FORCE")


ALLOWED, ZERO_IN, ZERO, TRANS, ALL, PAD = 1 << 25, 1 << 23, 1 << 24, 1 << 21, 1 << 22, 1 << 31


@pytest.mark.parametrize(
    ("mode", "zeroes_dates"),
    [
        (0, True), (None, True), (TRANS, False), (ALL, False), (ALLOWED, False), (ALLOWED | ZERO_IN, True), (ALLOWED | ZERO, True), (ZERO, True),  # noqa: E501
        (TRANS | ZERO | ZERO_IN, False), (PAD, True),
    ],
)  # fmt: skip
def test_the_settings_stand_in_the_log(mode: int | None, zeroes_dates: bool) -> None:
    padded = bool(mode and mode & PAD)
    assert query(mode=mode).settings == SessionSettings(padded, zeroes_dates, "")
    assert query(mode=mode, zone=b"Europe/Berlin").settings == SessionSettings(
        padded, zeroes_dates, "Europe/Berlin"
    )


# --- the source's answer


class Asked:
    """A catalog that answers with `rows`, or raises them."""

    def __init__(
        self,
        rows: Any,
        *,
        flavour: Any = MYSQL_FLAVOUR,
        zone: str = "SYSTEM",
        of_system: str = "CET",
        mode: str = "",
        alive: bool = True,
    ) -> None:
        self.rows, self.flavour, self.alive = rows, flavour, alive
        self._begun = {"zone": zone, "of_system": of_system, "mode": mode}
        self.reported: list[str] = []

    def run_query(self, sql: str) -> list[dict[str, Any]]:
        self.reported.append(sql)
        if "@@global" in sql:
            return [self._begun]
        if sql.startswith("SET"):
            return []
        if isinstance(self.rows, Exception):
            raise self.rows
        return [{"found": 1}] * self.rows


def answer(asked: Asked, doubt: DoubtedValues) -> bool:
    session: Any = asked
    return may_be_converted(session, ("bank", "t`"), doubt)


BOTH = DoubtedValues("x", "SYSTEM", ("s",), ("d`",))


def test_the_source_is_asked_in_the_zone_and_left_as_it_was() -> None:
    for rows in (0, 1):
        asked = Asked(rows)
        assert answer(asked, BOTH) is bool(rows)
        *_, limit, zone, select, lifted, session = asked.reported
        assert limit == "SET SESSION max_execution_time = 3000"
        assert lifted == "SET SESSION max_execution_time = 0"
        assert zone == "SET SESSION time_zone = 'SYSTEM'"
        assert session.startswith("SET SESSION time_zone = '+00:00'")
        assert select.startswith(
            "SELECT 1 AS found FROM `bank`.`t``` WHERE (FROM_UNIXTIME(UNIX_TIMESTAMP(`s`) - 3600) = `s` OR "
        )
        assert select.endswith("`d``` = '0000-00-00' LIMIT 1")


def test_only_what_can_be_is_asked_for() -> None:
    times = DoubtedValues("x", "SYSTEM", ("s",))
    assert not answer(Asked(1, of_system="UTC"), times)
    assert not answer(Asked(1, flavour=MARIADB_FLAVOUR), times)
    assert not answer(Asked(1, zone="+08:00"), DoubtedValues("x", GLOBAL, ("s",)))
    assert answer(Asked(1, zone="Europe/Berlin", of_system="UTC"), DoubtedValues("x", GLOBAL, ("s",)))
    dates = Asked(1, flavour=MARIADB_FLAVOUR)
    assert answer(dates, BOTH)
    assert "UNIX_TIMESTAMP" not in "".join(dates.reported)
    assert dates.reported[1] == "SET SESSION max_statement_time = 3"


def test_what_no_row_shows_is_not_asked() -> None:
    assert answer(Asked(0), DoubtedValues("x", certain=True))
    unpadded = DoubtedValues("x", GLOBAL, unpadded=True)
    assert answer(Asked(0, mode="STRICT_ALL_TABLES,PAD_CHAR_TO_FULL_LENGTH"), unpadded)
    assert not answer(Asked(0), unpadded)


@pytest.mark.parametrize(
    "error", [pymysql.err.OperationalError(3024, "time"), pymysql.err.ProgrammingError(1146, "gone")]
)
def test_no_answer_is_none_that_helps(error: Exception) -> None:
    asked = Asked(error)
    assert answer(asked, BOTH)
    assert asked.reported[-1].startswith("SET SESSION time_zone = '+00:00'")
    with pytest.raises(type(error)):
        answer(Asked(error, alive=False), BOTH)


# --- the barrier


@pytest.mark.parametrize("converted", [True, False])
def test_a_table_stops_whose_values_may_be_others(converted: bool) -> None:
    stage = Stage(converts=converted, settings=PADDED)
    stage.now[T] = table(c=Kind.VARCHAR)
    stage.captured.tables[T].set_definition(table(c=Kind.CHAR), (0, 2, 9, 0))
    assert stage.carry_out("ALTER TABLE t MODIFY c VARCHAR(9)") == ({T: "rows-replaced"} if converted else {})


def test_optimize_is_met_where_it_may_have_changed_values() -> None:
    stage = Stage(converts=True, settings=ZONE)
    stage.captured.tables[T].set_definition(table(s=Kind.TIMESTAMP), (0, 2, 9, 0))
    assert stage.carry_out("OPTIMIZE TABLE t") == {T: "rows-replaced"}


def test_rename_tables_ends_no_capture() -> None:
    """Its word is not TABLE; where the session's sql_mode makes dates zero, that was a StopIteration."""
    stage = Stage(settings=SessionSettings(zeroes_dates=True))
    assert stage.carry_out("RENAME TABLES other.x TO u") == {}
    assert stage.effects == [("m", "kept")]
