"""SQLite as a target of sessions: what docs/how-to/add-a-target.md asks for, and nothing else of rowlock
knows of it.

`KIND` is its entry in schemas.config.kinds.targets. A target's `database` is the file. SQLite has one writer
at a time: a lane's transaction begins by becoming it, so that its guard is a plain read.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
from msgspec.structs import replace

from consumer.errors import (
    ConsumerError,
    RefusedError,
    TableMissingError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.ordering.model import ApplyUnit, NetChange, TargetTable
from consumer.targets.alterations import (
    AddColumn,
    AlterTable,
    ChangeColumn,
    DropColumn,
    DropTable,
    apply_alterations,
    group_steps,
)
from consumer.targets.bookkeeping import Bookkeeping
from consumer.targets.checks.rights import MissingRight, RequiredRights
from consumer.targets.checks.table_facts import Remark, TableFacts
from consumer.targets.dialect import Dialect
from consumer.targets.dialect_components import DialectComponents, LockHolders, Rows, SingleStatements
from consumer.targets.session import SqlSession
from consumer.targets.shared.column_values import choose_fill_value
from consumer.targets.shared.common_syntax import create_if_missing, insert_values, render_limit
from consumer.targets.shared.keyed_reads import KeyedReads
from consumer.targets.sql import Fragment, Params, Syntax, qualify_table, quote_with, render_keys_in
from schemas.config.kinds.targets import TargetKind
from schemas.config.model import TargetConfig
from schemas.problems import Problem
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex

SCHEMA = "main"

# --- how it writes what databases write differently

quote = quote_with('"')
NOW = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')"
SYNTAX = Syntax(
    quote=quote,
    types={
        "name": "TEXT NOT NULL", "topic": "TEXT NOT NULL", "int": "INTEGER NOT NULL",
        "big": "INTEGER NOT NULL", "text": "TEXT NOT NULL", "text?": "TEXT",
        "now": f"TEXT NOT NULL DEFAULT ({NOW})", "id": "INTEGER",
    },
    now=NOW,
    millis=lambda column: f"CAST(ROUND((julianday({column}) - 2440587.5) * 86400000) AS INTEGER)",
    create=create_if_missing,
    locked=lambda select: select,  # whoever began has the database for itself
    page=render_limit,
    insert=insert_values,
)  # fmt: skip

# --- types: the declared type is enough to read a column's model back; checks refuse what does not fit

SIZES = {
    Kind.INT: ("bits",),
    Kind.DECIMAL: ("precision", "scale"),
    Kind.DATETIME: ("fsp",),
    Kind.VARCHAR: ("length",),
}


def declared(type_: ColumnType) -> str:
    """INT_TEXT is an integer for SQLite, and DECIMAL_TEXT a text."""
    sizes = ", ".join(str(getattr(type_, name)) for name in SIZES[type_.kind])
    loose = "COLLATE NOCASE" if str(type_.collation).endswith("_ci") else ""
    return f"{type_.kind.name}_TEXT({sizes}) {'COLLATE DECIMAL' if type_.kind is Kind.DECIMAL else loose}"


def model(declaration: str, collation: str) -> ColumnType:
    word, *numbers = re.findall(r"\w+", declaration)
    kind = Kind[word.removesuffix("_TEXT")]
    sizes: dict[str, Any] = dict(zip(SIZES[kind], map(int, numbers), strict=True))
    return ColumnType(kind=kind, collation="utf8mb4_general_ci" if collation == "NOCASE" else None, **sizes)


def checked(column: Column) -> str:
    name, type_ = quote(column.name), column.type
    most = 2 ** (type_.bits - 1) - 1 if type_.kind is Kind.INT else type_.length or 1000
    fits = f"abs({name}) <= {most}" if type_.kind is Kind.INT else f"length({name}) <= {most}"
    return f"{name} {declared(type_)} {'NULL' if column.nullable else 'NOT NULL'} CHECK ({fits})"


# --- the connection, and the one place that looks at its errors

ERROR_CLASSES: dict[str, type[ConsumerError]] = {
    "SQLITE_CONSTRAINT_UNIQUE": UniqueViolationError,
    "SQLITE_CONSTRAINT_PRIMARYKEY": UniqueViolationError,
    "SQLITE_CONSTRAINT": RefusedError,
    "SQLITE_CANTOPEN": TargetConfigError,
    "SQLITE_ERROR": TargetConfigError,  # no such column
}


def by_number(one: str, other: str) -> int:
    return (Decimal(one) > Decimal(other)) - (Decimal(one) < Decimal(other))


def connected(path: str) -> sqlite3.Connection:
    """A connection that says BEGIN itself; a take-over's first statement runs in a thread of its own."""
    found = sqlite3.connect(
        Path(path).as_uri() + "?mode=rw", uri=True, isolation_level=None, check_same_thread=False
    )
    found.create_collation("DECIMAL", by_number)
    found.execute("PRAGMA synchronous = FULL")
    return found


class SqliteLocks:
    """`dialect_components.ServerLocks`: no session can see or end the transaction of another process."""

    def end_blockers_of(self, waiting: int) -> list[int]:
        return []

    def find_lock_holders(self, waiting: int, table: Table) -> LockHolders:
        return LockHolders()

    def find_row_holders(self, waiting: int) -> LockHolders:
        return LockHolders()

    def end_connection(self, connection: int) -> bool:
        return False


class SqliteLink(SingleStatements):
    """A `consumer.targets.dialect_components.Link`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._raw: sqlite3.Connection | None = None
        self.affected = 0
        self.columns: list[str] = []
        self.lock_wait_s = 10.0
        self.locks = SqliteLocks()

    @property
    def raw(self) -> sqlite3.Connection:
        if self._raw is None:
            raise TransientError(f"the connection to {self._path} is lost")
        return self._raw

    def connect(self) -> None:
        if self._raw is None:
            with self.translate_errors():
                self._raw = connected(self._path)
                self._raw.execute("PRAGMA journal_mode = WAL")

    def begin_transaction(self, lock_wait_s: float | None, text: str, params: Params) -> Rows:
        return self.begin_all([(text, params)], lock_wait_s)[0]

    def begin_all(self, fragments: Sequence[Fragment], lock_wait_s: float | None = None) -> list[Rows]:
        self.execute(f"PRAGMA busy_timeout = {round((lock_wait_s or self.lock_wait_s) * 1000)}", [])
        self.execute("BEGIN IMMEDIATE", [])
        return [self.execute(*fragment) for fragment in fragments]

    def execute(self, text: str, params: Params) -> Rows:
        with self.translate_errors():
            cursor = self.raw.execute(text.replace("%s", "?").replace("%%", "%"), params)
            rows = cursor.fetchall()
            self.affected = cursor.rowcount
            self.columns = [each[0] for each in cursor.description or ()]
            return rows

    def commit(self) -> None:
        self.execute("COMMIT", [])

    def roll_back(self) -> None:
        if self._raw is not None and self._raw.in_transaction:
            self._raw.rollback()

    def read_certificate_expiry(self) -> None: ...

    def get_connection_id(self) -> int:
        return id(self.raw)

    def ping(self) -> bool:
        return self._raw is not None

    def close(self) -> None:
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.close()

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            name = str(getattr(error, "sqlite_errorname", ""))
            kind = ERROR_CLASSES.get(name) or ERROR_CLASSES.get(name[:17], TransientError)
            if str(error).startswith("no such table"):  # it has no code of its own, and no translations
                kind = TableMissingError
            raise kind(f"SQLite at {self._path}: {error} ({name})") from error


# --- definitions and reads

INDEXES = """
SELECT l.name, l.origin, i.name, i.coll FROM pragma_index_list(%s) AS l, pragma_index_xinfo(l.name) AS i
WHERE l."unique" AND i.key"""
COLUMNS = 'SELECT name, type, "notnull" FROM pragma_table_info(%s)'


class SqliteCatalog(KeyedReads):
    """A `consumer.targets.dialect_components.TargetCatalog`."""

    quote = staticmethod(quote)

    def __init__(self, link: SqliteLink) -> None:
        self._link = link

    def read_table(self, schema: str, name: str) -> Table | None:
        self._link.connect()
        indexes: dict[str, list[IndexPart]] = {}
        collations = {}
        for index, origin, column, collation in self._link.execute(INDEXES, [name]):
            parts = indexes.setdefault("PRIMARY" if origin == "pk" else str(index), [])
            parts.append(IndexPart(column=str(column)))
            collations[column] = str(collation)
        columns = tuple(
            Column(name=str(column), type=model(str(kind), collations.get(column, "")), nullable=not required)
            for column, kind, required in self._link.execute(COLUMNS, [name])
        )
        made = {index: UniqueIndex(name=index, parts=tuple(parts)) for index, parts in indexes.items()}
        if (key := made.pop("PRIMARY", None)) is None:
            return None
        return Table(db=schema, name=name, columns=columns, key=key, unique=tuple(made.values()))

    def read_table_facts(self, schema: str, name: str) -> TableFacts:
        query = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s"
        return TableFacts(triggers=tuple(str(row[0]) for row in self._link.execute(query, [name])))

    def find_missing_rights(self, required: RequiredRights) -> list[MissingRight]:
        return []

    def find_durability_risk(self) -> Remark | None:
        return None

    def explain_untested_version(self) -> Problem | None:
        return None

    def create_statements(self, table: Table) -> list[str]:
        body = [*map(checked, table.columns), f"PRIMARY KEY ({_columns(table.key)})"]
        body += [f"UNIQUE ({_columns(index)})" for index in table.unique]
        # without rowid, so that the key of one INTEGER column is an index like any other
        return [
            create_if_missing(qualify_table(quote, table.db, table.name), ", ".join(body)) + " WITHOUT ROWID"
        ]

    def render_numbering(self, table: Table, column: str, next_number: int) -> tuple[int, list[str]]:
        return next_number, []

    name_large_columns = staticmethod(lambda _, error: error)  # SQLite has no such limit

    def explain_left_out_indexes(self, table: Table) -> list[Problem]:
        return []

    def select_rows(self, table: TargetTable) -> tuple[str, Callable[[tuple[object, ...]], Row]]:
        columns = ", ".join(map(quote, table.table.column_names))
        return f"SELECT {columns} FROM {self.quote_table_name(table)}", lambda row: row  # type: ignore[return-value]


def _columns(index: UniqueIndex) -> str:
    return ", ".join(map(quote, index.columns))


# --- net changes


class SqliteApplier:
    """A `consumer.targets.dialect_components.NetChangeApplier`: row by row, for there is no round trip to
    save."""

    def __init__(self, link: SqliteLink, books: Bookkeeping) -> None:
        self._link = link
        self._books = books

    def on_transaction_end(self, *, committed: bool) -> None: ...

    def forget_table(self, schema: str, name: str) -> None: ...

    def apply_net_change(self, unit: ApplyUnit, net: NetChange, displacing: str | None) -> int:
        table, name = net.table, qualify_table(quote, net.table.schema, net.table.name)
        key = tuple(map(quote, table.table.key.columns))
        for missing in [*net.deletes, *(tuple(row[at] for at in table.key_at) for row in net.replaces)]:
            where, params = render_keys_in(key, [missing])
            self._link.execute(f"DELETE FROM {name} WHERE {where}", params)
        kept = 0 if displacing is None else self._displace_rows(unit, net, displacing, name)
        insert = insert_values(name, list(map(quote, table.table.column_names)), 1)
        sets = ", ".join(f"{c} = excluded.{c}" for c in map(quote, table.table.column_names))
        upsert = f"{insert} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}"
        for text, rows in ((upsert, net.snapshot), (insert, net.replaces), (upsert, net.updates)):
            for row in rows:
                self._link.execute(text, list(row))
        return kept

    def _displace_rows(self, unit: ApplyUnit, net: NetChange, displacing: str, name: str) -> int:
        kept, table = 0, net.table
        for row in net.rows:
            own, own_params = render_keys_in(
                tuple(map(quote, table.table.key.columns)), [tuple(row[at] for at in table.key_at)]
            )
            for index, at in zip(table.table.unique, table.unique_at, strict=True):
                same = " AND ".join(f"{quote(column)} = %s" for column in index.columns)
                where, params = f"{same} AND NOT ({own})", [*(row[i] for i in at), *own_params]
                rows = self._link.execute(f"SELECT * FROM {name} WHERE {where}", params)
                names = self._link.columns
                for values in rows:
                    whole = orjson.dumps(dict(zip(names, values, strict=True))).decode()
                    reported = [unit.pipeline, unit.topic, f"{table.schema}.{table.name}", whole, displacing]
                    self._link.execute(self._books.displaced.build_insert(1), [*reported])
                kept += len(rows)
                self._link.execute(f"DELETE FROM {name} WHERE {where}", params)
        return kept


# --- changes of tables: by a new one, for the database changes little of one in place


class SqliteAlterer:
    """A `consumer.targets.dialect_components.TableAlterer`."""

    transactional = True

    def __init__(self, link: SqliteLink, catalog: SqliteCatalog) -> None:
        self._link = link
        self._catalog = catalog

    def render_statements(self, change: AlterTable | DropTable) -> Iterator[str]:
        name = qualify_table(quote, SCHEMA, change.table.name)
        if isinstance(change, DropTable):
            yield f"DROP TABLE IF EXISTS {name}"
            return
        ending, between = apply_alterations(change), f"rowlock {change.table.name}"
        yield from self._catalog.create_statements(replace(ending, name=between))
        columns, values = ", ".join(map(quote, ending.column_names)), ", ".join(kept_values(change).values())
        yield f"INSERT INTO {qualify_table(quote, SCHEMA, between)} ({columns}) SELECT {values} FROM {name}"
        yield f"DROP TABLE {name}"
        yield f"ALTER TABLE {qualify_table(quote, SCHEMA, between)} RENAME TO {quote(change.table.name)}"

    def get_index_name(self, table: Table, index: UniqueIndex) -> str:
        return f"{table.name}.{index.columns[0]}"

    @contextmanager
    def extend_lock_wait(self, lock_wait_s: float) -> Iterator[None]:
        yield  # the transaction has the lock of the whole database


def kept_values(change: AlterTable) -> dict[str, str]:
    """Return the name of each column afterwards → what a row that is there has in it."""
    values = {name: quote(name) for name in change.table.column_names}
    for renames, steps in group_steps(change):
        values = {renames.get(name, name): value for name, value in values.items()}
        for step in steps:
            if isinstance(step, DropColumn):
                del values[step.name]
            elif isinstance(step, AddColumn):
                values[step.column.name] = literal(choose_fill_value(step))
            elif isinstance(step, ChangeColumn):
                kept = values[step.desired.name] if step.lossless else "NULL"
                values[step.desired.name] = (
                    f"coalesce({kept}, {literal(choose_fill_value(AddColumn(step.desired)))})"
                )
    return {name: values[name] for name in apply_alterations(change).column_names}


def literal(value: object) -> str:
    text = str(value).replace("'", "''").replace("%", "%%")
    return "NULL" if value is None else f"'{text}'" if isinstance(value, str) else text


def open_sqlite(target: TargetConfig, name: str) -> SqlSession:
    link, books = SqliteLink(target.database), Bookkeeping(SCHEMA, SYNTAX)
    catalog = SqliteCatalog(link)
    parts = (link, books, catalog, SqliteApplier(link, books), SqliteAlterer(link, catalog))
    return SqlSession(DialectComponents(*parts, fresh=lambda: SqliteLink(target.database)))


SQLITE = Dialect("sqlite", open_sqlite)
KIND = TargetKind("tests.stands.sqlite_target", "SQLITE")
