"""Net changes into MySQL, MariaDB and TDSQL: DELETE … IN, INSERT, INSERT … ON DUPLICATE KEY UPDATE, sorted by key.

Why ON DUPLICATE KEY UPDATE is safe for updates in place although it may hit any unique index: when the row of the key
exists, its primary key conflicts first and that row is updated; a new unique value that another row holds is then an
error (1062). When the row is missing and another row holds one of its unique values, *that* row is updated and the key
stays missing. So on tables with further unique indexes the keys are counted after each statement: one missing is a
UniqueViolationError, and the transaction is rolled back. A key column is assigned only a value that the server holds equal to the
one that the row has (the same key in other bytes: a case, a trailing space, -0.0 and 0.0), so the count cannot be fooled.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from consumer.errors import RefusedError, UniqueViolationError
from consumer.ordering.model import ApplyUnit, NetChange, TargetTable
from consumer.targets.bookkeeping.books import Books
from consumer.targets.mysql.sql import (
    STATEMENT_BYTES,
    MySqlPlan,
    bare,
    bytes_of,
    chunks,
    literal_key,
    mysql_plan,
)
from consumer.targets.mysql.values import key_encoder, literal
from consumer.targets.shared.table_cache import PerTable
from schemas.table.model import Key, Row, UniqueIndex
from schemas.values.mysql import to_mysql

if TYPE_CHECKING:
    from consumer.targets.mysql.connection import MySqlLink

#: Room for the statement's head in a packet.
PACKET_RESERVE = 1 << 16
DISPLACED_PER_STATEMENT = 500


@dataclass(frozen=True)
class _Prepared:
    table: TargetTable
    plan: MySqlPlan
    row: Callable[[Row], Sequence[object]]
    key: Callable[[Key], Sequence[object]]


class MySqlApplier:
    """`session.Applier` over PyMySQL."""

    def __init__(self, link: MySqlLink, books: Books) -> None:
        self._link = link
        self._books = books
        self._tables = PerTable(_prepare)
        self.forget = self._tables.forget

    def ended(self, *, committed: bool) -> None:
        """Nothing here outlives a statement."""

    def apply(self, unit: ApplyUnit, net: NetChange, displacing: str | None) -> int:
        prepared = self._tables.get(net.table)
        key_at = net.table.key_at
        gone = [*net.deletes, *(tuple(row[at] for at in key_at) for row in net.replaces)]
        self._delete(prepared, _literals(prepared.key, gone))
        kept = 0 if displacing is None else self._displace(prepared, net, unit, displacing)
        self._put(prepared, net.snapshot)
        self._insert(prepared, net.replaces)
        self._update(prepared, net.updates)
        return kept

    def _limit(self) -> int:
        return min(STATEMENT_BYTES, self._link.max_packet - PACKET_RESERVE)

    def _delete(self, prepared: _Prepared, keys: list[list[str]]) -> None:
        plan = prepared.plan
        # the names are repeated only in composite keys; 40 covers them
        sizes = [sum(map(bytes_of, key)) + 40 * (len(key) - 1) for key in keys]
        for start, end in chunks(sizes, self._limit()):
            self._link.send(f"DELETE FROM {plan.name} WHERE {literal_key(plan.key_columns, keys[start:end])}")

    def _insert(self, prepared: _Prepared, rows: Sequence[Row]) -> None:
        rendered = _tuples(prepared.row, rows)
        for start, end in chunks([bytes_of(text) for text in rendered], self._limit()):
            self._send_rows(prepared, rendered[start:end], "")

    def _update(self, prepared: _Prepared, rows: Sequence[Row]) -> None:
        rendered = _tuples(prepared.row, rows)
        for start, end in chunks([bytes_of(text) for text in rendered], self._limit()):
            self._write_over(prepared, rows[start:end], rendered[start:end])

    def _put(self, prepared: _Prepared, rows: Sequence[Row]) -> None:
        """Write rows of a snapshot over those that are there; where none is, a plain insert is cheaper, and locks less."""
        rendered = _tuples(prepared.row, rows)
        for start, end in chunks([bytes_of(text) for text in rendered], self._limit()):
            if self._there(prepared, rows[start:end]):
                self._write_over(prepared, rows[start:end], rendered[start:end])
            else:
                self._send_rows(prepared, rendered[start:end], "")

    def _write_over(self, prepared: _Prepared, rows: Sequence[Row], rendered: list[str]) -> None:
        self._send_rows(prepared, rendered, prepared.plan.on_duplicate)
        if prepared.table.table.unique and (found := self._there(prepared, rows)) != len(rows):
            raise UniqueViolationError(
                f"{len(rows)} rows of {prepared.plan.table_name} were to be updated, {found} are there: a row of another key "
                "holds a unique value of a missing one"
            )

    def _send_rows(self, prepared: _Prepared, rendered: list[str], tail: str) -> None:
        body = ",".join(rendered)
        if len(rendered) == 1 and bytes_of(body) > self._link.max_packet - PACKET_RESERVE:
            raise RefusedError(
                f"a row of {prepared.plan.table_name} needs {bytes_of(body)} bytes, more than the target takes in one "
                f"statement (max_allowed_packet = {self._link.max_packet}): raise it there"
            )
        self._link.send(f"{prepared.plan.insert}{body}{tail}")

    def _there(self, prepared: _Prepared, rows: Sequence[Row]) -> int:
        """Return how many of the keys of `rows` are there."""
        plan, key_at = prepared.plan, prepared.table.key_at
        keys = _literals(prepared.key, [tuple(row[at] for at in key_at) for row in rows])
        [(found,)] = self._link.send(
            f"SELECT COUNT(*) FROM {plan.name} WHERE {literal_key(plan.key_columns, keys)}"
        )
        return int(str(found))

    def _displace(self, prepared: _Prepared, net: NetChange, unit: ApplyUnit, displacing: str) -> int:
        """Make room. Returns how many rows were written to rowlock_displaced."""
        kept = 0
        needed = list(net.rows)
        for index in prepared.plan.unique:
            for at in range(0, len(needed), DISPLACED_PER_STATEMENT):
                where = self._foreign(prepared, index, needed[at : at + DISPLACED_PER_STATEMENT])
                if where:
                    kept += self._keep_whole(prepared.plan, where, unit, displacing)
                    self._link.send(f"DELETE FROM {prepared.plan.name} WHERE {where}")
        return kept

    def _keep_whole(self, plan: MySqlPlan, where: str, unit: ApplyUnit, displacing: str) -> int:
        """Write the rows to rowlock_displaced with all their columns; locked, so that nobody changes them before.

        Returns how many.
        """
        rows = self._link.select_whole(f"SELECT * FROM {plan.name} WHERE {where} FOR UPDATE")
        for whole in rows:
            params = [unit.pipeline, unit.topic, plan.table_name, _json(whole), displacing]
            self._link.execute(self._books.displaced.insert(1), list(params))
        return len(rows)

    def _foreign(self, prepared: _Prepared, index: UniqueIndex, rows: Sequence[Row]) -> str:
        """Return the predicate "has a row's value in `index`, and another key"; "" when all values are NULL."""
        return " OR ".join([text for row in rows if (text := self._foreign_to(prepared, index, row))])

    def _foreign_to(self, prepared: _Prepared, index: UniqueIndex, row: Row) -> str | None:
        """Return the predicate "has this row's value in `index`, and another key"."""
        table = prepared.table
        [values] = _literals(prepared.row, [row])
        at = table.table.indexes_of(index.columns)
        if any(row[i] is None for i in at):
            return None
        same = []
        for part, i in zip(index.parts, at, strict=True):
            column = bare(part.column)
            cut = f"LEFT({{}}, {part.prefix})" if part.prefix else "{}"
            same.append(f"{cut.format(column)} = {cut.format(values[i])}")
        [key] = _literals(prepared.key, [tuple(row[i] for i in table.key_at)])
        return f"({' AND '.join(same)} AND NOT ({literal_key(prepared.plan.key_columns, [key])}))"


def _literals(encode: Callable[[Row], Sequence[object]], rows: Sequence[Row]) -> list[list[str]]:
    """Return every value as the driver writes it in a statement."""
    return [[literal(value) for value in encode(row)] for row in rows]


def _tuples(encode: Callable[[Row], Sequence[object]], rows: Sequence[Row]) -> list[str]:
    return ["(" + ",".join([literal(value) for value in encode(row)]) + ")" for row in rows]


def _prepare(table: TargetTable) -> _Prepared:
    return _Prepared(table, mysql_plan(table), to_mysql(table.table), key_encoder(table.table))


def _json(row: dict[str, object]) -> str:
    return orjson.dumps(row, default=_plain).decode()


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
