"""XA transactions from XA PREPARE to their end. Pure.

A transaction has one of two states: *open* from its PREPARE on, and *ended* by XA COMMIT or XA ROLLBACK.
Open ones are stored with the position. Capture publishes nothing at PREPARE: the server may still roll the
transaction back. At COMMIT the rows are taken from memory, or read again from the log at PREPARE
(producer/sources/binlog/prepared_rows.py), and folded into the transaction of the COMMIT.

Invariants:

1. A row has the position of the COMMIT, `[era, file, pos of the COMMIT, row]`, so rows are published in the
   order of commits, and twice only with the same position. `row` counts all rows since PREPARE.
2. A stored position names every transaction that is open there, with the place of its rows. So a start
   continues at the position, whatever is open, and needs the log from the oldest open PREPARE on.
3. Memory holds the rows of newly prepared transactions up to a limit, and decides nothing: the log has
   the same rows.
4. A COMMIT belongs to the newest PREPARE of its XID. A server cannot prepare an XID that is in use, so an
   older open one was lost by the server, and its place is replaced.
5. Rows are decoded by the definition at PREPARE. If a statement concerned their table since, the table stops
   at COMMIT, and so does a table that the statement renamed it to.
6. A COMMIT without a PREPARE stops all tables: the rows are unknown. On a server whose log has another order
   of COMMITs than its engine, each COMMIT stops the tables of its rows.
7. A server that crashed after it wrote PREPARE to its log, and before its engine had prepared, does not know
   the transaction, which then never ends in the log. It is reported, and stays open until a person ends it
   (`END_LOST_XA`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from producer.errors import TableStoppedError
from producer.sources.changes import OpenXa, PreparedTransaction, TableName, list_places
from producer.statements import ddl
from producer.statements.statement import Statement
from schemas.findings import COPY_EACH
from schemas.wire.position import LogPoint, parse_binlog_file_number
from schemas.wire.records import PreparedPlace


class XaCommit(NamedTuple):
    """The XA COMMIT of a transaction: its rows belong here.

    `stop`: of captured tables that cannot be followed; it takes effect before the rows. `place`: where the
    rows are in the log; None: nothing of them is published. `tables`: the captured tables with rows in it.
    """

    xid: str
    stop: TableStoppedError | None
    place: PreparedPlace | None = None
    tables: frozenset[TableName] = frozenset()


class RecoveredXa(NamedTuple):
    """The answer of XA RECOVER, between two readings of the log's end. `xids`: as XA COMMIT in the log names
    them.
    """

    before: LogPoint
    xids: frozenset[str]
    after: LogPoint

    def find_lost(self, open_: OpenXa) -> Iterator[tuple[str, PreparedPlace]]:
        """Yield the transactions that the server does not know, of those that are `open_` in the log at a
        place from `after` on."""
        for xid, place in list_places(open_).items():
            if xid not in self.xids and (parse_binlog_file_number(place.file), place.end) <= self.before:
                yield xid, place


class PreparedXaTransactions:
    """The open transactions. `open` is replaced at each change: what was handed out stays as it is.

    `in_order`: whether the server logs XA COMMITs in the order in which it executes them.
    """

    def __init__(self, open_: OpenXa, *, in_order: bool = True) -> None:
        self.open = open_
        self._in_order = in_order

    def add_prepared(self, xid: str, tables: Iterable[TableName], place: PreparedPlace) -> None:
        self.open = {**self.open, xid: PreparedTransaction(tuple(sorted(tables)), place)}

    def end_prepared(self, xid: str) -> PreparedTransaction | None:
        """End a transaction, and return it; None: it is not known."""
        found = self.open.get(xid)
        if found is not None:
            self.open = {other: each for other, each in self.open.items() if other != xid}
        return found

    def commit_prepared(self, xid: str, captured: Callable[[str, str], bool]) -> XaCommit:
        """End a transaction by XA COMMIT."""
        found = self.end_prepared(xid)
        if found is None:
            return XaCommit(xid, _build_unknown_stop(xid))
        tables = frozenset(name for name in found.tables if captured(*name))
        if found.place is None:
            return XaCommit(xid, _build_unplaced_stop(xid, tables) if tables else None)
        if not self._in_order:
            return XaCommit(xid, _build_unordered_stop(xid, tables) if tables else None)
        altered = frozenset(name for name in found.place.altered if captured(*name))
        stop = _build_altered_stop(xid, altered) if altered else None
        return XaCommit(xid, stop, found.place if tables - altered else None, tables - altered)

    def note_statement(self, statement: Statement) -> None:
        """Note a statement that may change the definition of tables with prepared rows.

        CREATE TABLE does not: either the table is new, or there is one and it stays (IF NOT EXISTS).
        """
        kind = statement.kind
        creates = isinstance(kind, ddl.TableDdl) and kind.action == "create"
        if self.open and not (creates and not _replaces_table(statement)):
            self.open = {xid: _note_statement(each, kind) for xid, each in self.open.items()}


def build_purged_stop(commit: XaCommit, place: PreparedPlace) -> TableStoppedError:
    """Return the stop of tables with rows in a file of the log that no longer exists."""
    return TableStoppedError(
        commit.tables, "xa",
        f"the source has purged {place.file}, which has the rows of an XA transaction ({commit.xid}) that "
        f"changes {_list_tables(commit.tables)}: it was prepared there, and is committed now",
        f"end XA transactions before their log is purged (binlog_expire_logs_seconds), and {COPY_EACH}",
    )  # fmt: skip


def _replaces_table(statement: Statement) -> bool:
    """Return whether a CREATE is MariaDB's CREATE OR REPLACE."""
    return statement.tokens[1].upper == "OR"


def _note_statement(prepared: PreparedTransaction, kind: ddl.StatementKind) -> PreparedTransaction:
    place = prepared.place
    if place is None:
        return prepared
    match kind:
        case ddl.TableDdl():
            found = _list_concerned({*prepared.tables, *place.altered}, kind.tables)
        case ddl.SchemaDrop():
            found = {name for name in prepared.tables if name[0].casefold() == kind.db.casefold()}
        case _:
            found = set(prepared.tables)
    if found <= set(place.altered):
        return prepared
    altered = tuple(sorted({*place.altered, *found}))
    return prepared._replace(place=msgspec.structs.replace(place, altered=altered))


def _list_concerned(tables: set[TableName], named: Iterable[TableName]) -> set[TableName]:
    """Return those of `tables` that a statement names, and all tables that it names; empty if it names none
    of them. Names are compared as if the server did not distinguish case: a stop too many is no loss.
    """
    folded = {(db.casefold(), table.casefold()) for db, table in named}
    found = {name for name in tables if (name[0].casefold(), name[1].casefold()) in folded}
    return {*found, *named} if found else found


def _list_tables(tables: Iterable[TableName]) -> str:
    return ", ".join(sorted(f"{db}.{table}" for db, table in tables))


def _build_unknown_stop(xid: str) -> TableStoppedError:
    return TableStoppedError(
        None, "xa",
        f"XA COMMIT of a transaction that was prepared before capture began ({xid}): "
        "which rows it changed is unknown",
        COPY_EACH,
    )  # fmt: skip


def _build_unplaced_stop(xid: str, tables: frozenset[TableName]) -> TableStoppedError:
    return TableStoppedError(
        tables, "xa",
        f"an XA transaction ({xid}) that changes {_list_tables(tables)} was prepared under an older version "
        "of rowlock, which did not note where its rows are",
        COPY_EACH,
    )  # fmt: skip


def _build_unordered_stop(xid: str, tables: frozenset[TableName]) -> TableStoppedError:
    return TableStoppedError(
        tables, "xa",
        f"an XA transaction ({xid}) changes {_list_tables(tables)}, and this version of the server may log "
        "XA COMMITs in another order than it executes them (MDEV-26652)",
        f"upgrade the server to MariaDB 10.6 or later, and {COPY_EACH}",
    )  # fmt: skip


def _build_altered_stop(xid: str, tables: frozenset[TableName]) -> TableStoppedError:
    return TableStoppedError(
        tables, "xa",
        f"a statement changed {_list_tables(tables)} between XA PREPARE and XA COMMIT of a transaction "
        f"({xid}) with rows of it",
        COPY_EACH,
    )  # fmt: skip
