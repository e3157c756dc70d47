"""Executes a statement on filled tables of a server, and compares what the server did with what capture
and apply conclude from its log.

`WitnessServer.execute` returns what the server did. `conclude` returns what happens to a captured table, as
producer/barriers and consumer/tables/evolution decide it, and what is wrong with it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pymysql

from consumer.errors import ConsumerError
from consumer.tables.evolution.decisions import AdoptDefinition, KeepDefinition, judge_table_event
from consumer.tables.router import SchemaChangePolicy, build_target_table
from consumer.targets.dialect import open_session
from producer.binlog_format import log_event as log
from producer.binlog_format.log_event import BinlogEvent, SessionSettings
from producer.sources.catalog import BINLOG_FLAVOURS
from producer.sources.converted import may_be_converted
from producer.sources.source_session import SourceSession
from producer.statements.columns import compute_column_changes
from producer.statements.conversions import DoubtedValues, find_alter_doubt, treat_optimize_as_alter
from producer.statements.ddl import DmlStatement, HarmlessStatement, SchemaDrop, TableDdl, UnknownStatement
from producer.statements.judgement import StatementVerdict, judge_statement
from producer.statements.statement import Statement, parse_statement
from schemas.config.model import TargetConfig
from schemas.errors import SchemaError
from schemas.io.mysql_catalog import read_table
from schemas.io.mysql_connection import connect_mysql
from schemas.table.fills import find_fill
from schemas.table.model import Kind, Table, Value, is_same_definition
from schemas.wire.event import ColumnChanges
from tests.kits.apply import FakeSource
from tests.kits.decoder_support import LogReader, raw_events
from tests.kits.witnessed_statements import BARE, CHARACTERS, COLUMNS, FORMS, GIVEN, MODES, ROWS, Case

Rows = list[dict[str, Value]]
TableName = tuple[str, str]
POLICIES: tuple[SchemaChangePolicy, ...] = ("lenient", "evolve", "ignore")
_OBJECTS = ("VIEW", "PROCEDURE", "FUNCTION", "EVENT")
_BOUND_TO_SESSION = ("LOCK TABLES", "TEMPORARY", "HANDLER", "PREPARE")


class Seen(NamedTuple):
    """A table as the server has it.

    `table`: None if it is missing or cannot be captured. `rows`: None if they cannot be read.
    """

    table: Table | None
    rows: Rows | None = None
    partitioning: str = ""


class Done(NamedTuple):
    """A statement that the server executed, what it logged for it, and its tables before and after it."""

    sql: str
    logged: list[Statement]
    tables: dict[TableName, tuple[Seen, Seen]]


class WitnessServer:
    """A server with the tables `t` and `o`, which each statement finds as the form of its case has them."""

    def __init__(self, service: Any, db: str) -> None:
        self.service, self.db, self.kind = service, db, service.kind.lower()
        self._catalog = connect_mysql(service.host, service.port, "root", "", "")
        values = {
            "type": self.kind, "host": service.host, "port": service.port, "user": service.user,
            "password": "", "database": db,
        }  # fmt: skip
        self._session = open_session(TargetConfig.model_validate(values), name="witness")
        self._asked = SourceSession(self._catalog, BINLOG_FLAVOURS[self.kind])
        self._link = service.connect(db)
        self._log = LogReader(service).path()
        self._before: dict[tuple[str, str], Seen] = {}
        self._fresh: set[tuple[str, str]] = set()
        self._has_objects = False

    def close(self) -> None:
        for each in (self._link, self._catalog, self._session):
            each.close()

    def execute(self, case: Case) -> Done | None:
        """Execute the statement in a session of its own; None: the server refused it."""
        names = ("t", "o") if "{o}" in case.sql else ("t",)
        self._create_tables(case.form, [name for name in names if (name, case.form) not in self._fresh])
        start, sql = self._read_log_end(), case.sql.replace("{db}", self.db).replace("{o}", "o")
        self._has_objects |= any(word in sql for word in _OBJECTS)
        taken = self._try_statement(sql, MODES[case.mode])
        if taken or "ALTER" not in sql.upper():  # an ALTER that is refused did nothing
            self._fresh -= {(name, form) for name in names for form in FORMS}
        if not taken:
            return None
        seen = {(self.db, name): (self._before[name, case.form], self.look_at(name)) for name in names}
        return Done(sql, self._read_logged(start, self._read_log_end()), seen)

    def may_be_converted(self, name: TableName, doubt: DoubtedValues) -> bool:
        return may_be_converted(self._asked, name, doubt)

    def _run(self, sql: str) -> list[Any]:
        with self._catalog.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def _create_tables(self, form: str, names: Sequence[str]) -> None:
        if not names:
            return
        there = (f"{self.db}.{name}" for name in (*names, "n1", "n2", "other", "zz"))
        self._run(f"DROP TABLE IF EXISTS {', '.join(there)}")
        for kind in _OBJECTS if self._has_objects else ():
            self._run(f"DROP {kind} IF EXISTS {self.db}.n1")
        self._has_objects = False
        for name in names:
            self._create_table(name, form)
        self._catalog.commit()
        others = {each for each in self._fresh if each[0] not in names}
        self._fresh = others | {(name, form) for name in names}
        for name in names:
            if (name, form) not in self._before:
                self._before[name, form] = self.look_at(name)

    def _create_table(self, name: str, form: str) -> None:
        columns, given, rows = COLUMNS, GIVEN, ROWS
        if form == "bare":
            columns, given = BARE, "id, v"
            rows = tuple(f"{row.partition(', ')[0]}, 'x')" for row in ROWS)
        partitions = FORMS[form] if name == "t" else ""
        self._run(f"CREATE TABLE {self.db}.{name} ({columns}) {CHARACTERS} {partitions}")
        values = ", ".join(rows if name == "t" else rows[:1])
        self._run(f"INSERT INTO {self.db}.{name} ({given}) VALUES {values}")

    def _try_statement(self, sql: str, mode: str) -> bool:
        try:
            with self._link.cursor() as cursor:
                cursor.execute(
                    f"SET SESSION sql_mode = '{mode}', time_zone = '+00:00', lock_wait_timeout = 20"
                )
                cursor.execute(sql)
                cursor.fetchall()
            self._link.commit()
        except pymysql.MySQLError:
            return False
        finally:
            if any(word in sql for word in _BOUND_TO_SESSION):
                self._link.close()
                self._link = self.service.connect(self.db)
        return True

    def look_at(self, name: str) -> Seen:
        found = self._run(
            "SELECT DISTINCT COALESCE(partition_method, '') FROM information_schema.partitions "
            f"WHERE table_schema = '{self.db}' AND table_name = '{name}'"
        )
        partitioning = str(found[0][0]) if found else ""
        try:
            table = read_table(self._catalog, self.db, name)
        except SchemaError:
            return Seen(None, None, partitioning)
        finally:
            self._catalog.commit()
        with contextlib.suppress(ConsumerError):
            rows = self._session.fetch_rows(build_target_table(table, table), None, 1000)
            named = [dict(zip(table.column_names, row, strict=True)) for row in rows]
            return Seen(table, named, partitioning)
        return Seen(table, None, partitioning)

    def _read_log_end(self) -> int:
        return int(self._run(self.service.log_status)[0][1])

    def _read_logged(self, start: int, end: int) -> list[Statement]:
        """Return the statements in its database that the log has between two offsets."""
        found: list[Statement] = []
        for raw in raw_events(self._log, start):
            if start >= end:
                return found
            start += len(raw)
            if raw[4] in log.QUERIES:
                flags, body = int.from_bytes(raw[17:19], "little"), raw[19:-4]
                event = BinlogEvent(raw[4], 0, 1, flags, self._log.name, start, start, body)
                if (query := log.parse_statement_event(event)).db == self.db:
                    found.append(parse_statement(query))
        return found


# --- what capture and apply conclude


class Conclusion(NamedTuple):
    """What happens to a table. `goes_on`: without a copy, under some policy. `wrong`: "" if nothing is."""

    what: str
    goes_on: bool
    wrong: str = ""


def conclude(
    name: TableName,
    statements: Sequence[Statement],
    before: Seen,
    after: Seen,
    converts: Callable[[TableName, DoubtedValues], bool],
) -> Conclusion:
    """Return what happens to the captured table `name` by the statements that the log has.

    `converts`: see `WitnessServer.may_be_converted`.
    """
    found = [(each, verdict) for each in statements for verdict in _list_verdicts(each, name)]
    if not found:
        return Conclusion("untouched", True, _find_difference(before, after))
    if len(found) > 1:
        return Conclusion("stop: several statements", False)
    [(statement, verdict)] = found
    action = statement.kind.action if isinstance(statement.kind, TableDdl) else ""
    if action == "truncate":
        return Conclusion("truncated", True, _find_difference(before._replace(rows=[]), after))
    if action == "create" and verdict.definition == "kept":
        return Conclusion("untouched", True, _find_difference(before, after))
    list_like = not verdict.holds_under(before.partitioning)
    changed = verdict.rows != "kept" and verdict.must_stop(same_definition=False)
    if changed or list_like or action in ("create", "rename"):
        return Conclusion(f"stop: {verdict.rows}", False)
    return _conclude_definition(statement, verdict, before, after, lambda doubt: converts(name, doubt))


def _list_verdicts(statement: Statement, name: TableName) -> list[StatementVerdict]:
    """Return the verdicts on a captured table, as producer/barriers/impact.py finds them."""
    if statement.kind == HarmlessStatement() and statement.query.settings != SessionSettings():
        statement = treat_optimize_as_alter(statement)
    match statement.kind:
        case TableDdl():
            return [each for each in judge_statement(statement) if each.table == name]
        case SchemaDrop(db):
            return [StatementVerdict(name, "gone", "changed")] if db == name[0] else []
        case DmlStatement(words):
            return [StatementVerdict(name, "unknown", logged=True)] if name[1] in words else []
        case UnknownStatement():
            return [StatementVerdict(name, "unknown")]
    return []


def _conclude_definition(
    statement: Statement,
    verdict: StatementVerdict,
    before: Seen,
    after: Seen,
    converts: Callable[[DoubtedValues], bool],
) -> Conclusion:
    """Return what becomes of a table whose definition is sent, as producer/barriers/barriers.py does it and
    consumer/tables/evolution/decisions.py judges it.
    """
    assert before.table is not None
    if after.table is None:
        return Conclusion("stop: unfit", False, "no definition" if verdict.keeps_definition else "")
    same = is_same_definition(before.table, after.table)
    if verdict.keeps_definition and not same:
        return Conclusion("kept", True, f"another definition: {after.table}")
    if verdict.must_stop(same_definition=same):
        return Conclusion(f"stop: {verdict.rows}", False)
    doubt = find_alter_doubt(statement, before.table, after.table)
    if doubt is not None and converts(doubt):
        return Conclusion("stop: converted", False)
    columns = compute_column_changes([statement], before.table, after.table)
    effect = verdict.get_effect(same_definition=same)
    source = FakeSource(table=after.table)
    event = source.event("m", definition=after.table, ddl=statement.sql, columns=columns, effect=effect)
    decided = {policy: judge_table_event(before.table, event, policy) for policy in POLICIES}
    wrong = []
    for policy, decision in decided.items():
        if isinstance(decision, KeepDefinition | AdoptDefinition):
            changes = decision.columns if isinstance(decision, AdoptDefinition) else ColumnChanges()
            wrong.append(_find_wrong_rows(changes, before, after, policy))
    whats = {type(each).__name__ for each in decided.values()}
    return Conclusion("/".join(sorted(whats)), whats != {"NeedsCopy"}, "; ".join(filter(None, wrong)))


def _find_wrong_rows(changes: ColumnChanges, before: Seen, after: Seen, policy: SchemaChangePolicy) -> str:
    """Return how rows that follow the definition differ from the server's; "": they do not."""
    assert after.table is not None
    assert before.rows is not None
    left_out = changes.added if policy == "ignore" else ()
    rows = [_follow_changes(row, changes, after.table, left_out) for row in before.rows]
    names = [name for name in after.table.column_names if name not in left_out]
    if set(names) != rows[0].keys():
        return f"{policy}: columns {names}, not {sorted(rows[0])}"
    return _compare_rows(rows, after, names)


def _follow_changes(
    row: dict[str, Value], changes: ColumnChanges, table: Table, left_out: Sequence[str]
) -> dict[str, Value]:
    fills = {name: find_fill(table.get_column(name)) for name in changes.added if name not in left_out}
    now = {changes.renamed.get(key, key): value for key, value in row.items() if key not in changes.dropped}
    return now | {name: fill.value for name, fill in fills.items() if fill is not None}


def _find_difference(before: Seen, after: Seen) -> str:
    if before.table is None or before.table != after.table:
        return f"another definition: {after.table}"
    return _compare_rows(before.rows or [], after, before.table.column_names)


def _compare_rows(rows: Rows, after: Seen, names: Sequence[str]) -> str:
    assert after.table is not None
    if after.rows is None:
        return "no rows that can be read"
    expected, found = (_list_plain_rows(each, after.table, names) for each in (rows, after.rows))
    return "" if expected == found else f"rows {[*(found - expected)]}, not {[*(expected - found)]}"


_NUMBERS = (Kind.INT, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE, Kind.YEAR)
_MOMENTS = (Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME)


def _list_plain_rows(rows: Rows, table: Table, names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """Return rows in which equal values have one form: 1 and 1.00, a moment with and without a fraction."""
    kinds = [table.get_column(name).type.kind for name in names]
    return Counter(tuple(map(_plain, (row[name] for name in names), kinds)) for row in rows)


def _plain(value: Value, kind: Kind) -> Any:
    if value is not None and kind in _NUMBERS:
        return Decimal(str(value)).normalize()
    if value is not None and kind in _MOMENTS:
        whole = str(value).removesuffix("Z")
        return whole.rstrip("0").rstrip(".") if "." in whole else whole
    return value


def is_needless(conclusion: Conclusion, before: Seen, after: Seen) -> bool:
    """Return whether a table need not have stopped: columns of the same names have the values of before,
    and added ones have what the definition shows.
    """
    if conclusion.goes_on or after.table is None or before.table is None or before.rows is None:
        return False
    added = tuple(name for name in after.table.column_names if name not in before.table.column_names)
    dropped = tuple(name for name in before.table.column_names if name not in after.table.column_names)
    if None in [find_fill(after.table.get_column(name)) for name in added]:
        return False
    with contextlib.suppress(ArithmeticError):  # a text that is no number
        return not _find_wrong_rows(ColumnChanges(added=added, dropped=dropped), before, after, "evolve")
    return False
