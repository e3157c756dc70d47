"""Net changes into MySQL and MariaDB: DELETE … IN, INSERT, INSERT … ON DUPLICATE KEY UPDATE,
sorted by key.

ON DUPLICATE KEY UPDATE is safe for updates in place although it may match any unique index. If the row
of the key exists, its primary key conflicts first and that row is updated; a new unique value that
another row holds is then an error (1062). If the row is missing and another row holds one of its unique
values, *that* row is updated and the key stays missing. So on tables with further unique indexes the
keys are counted after each statement: a missing one is a UniqueViolationError, and the transaction is
rolled back. A key column is assigned only a value that the server considers equal to the row's present
one (the same key in other bytes: a case, a trailing space, -0.0 and 0.0), so the count is reliable.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from consumer.errors import RefusedError, UniqueViolationError
from consumer.ordering.model import ApplyUnit, NetChange, TargetTable
from consumer.targets.bookkeeping import Bookkeeping
from consumer.targets.mysql.sql import (
    STATEMENT_BYTES,
    MySqlPlan,
    bare,
    build_mysql_plan,
    measure_bytes,
    render_key_predicate,
    split_chunks,
)
from consumer.targets.mysql.values import make_key_encoder, render_literal
from consumer.targets.sql import TableCache
from schemas.table.model import Key, Row, UniqueIndex
from schemas.values.mysql import to_mysql

if TYPE_CHECKING:
    from consumer.targets.mysql.connection import MySqlLink

#: Bytes reserved for the statement's head in a packet.
PACKET_RESERVE = 1 << 16
DISPLACED_PER_STATEMENT = 500


@dataclass(frozen=True)
class _Prepared:
    table: TargetTable
    plan: MySqlPlan
    row: Callable[[Row], Sequence[object]]
    key: Callable[[Key], Sequence[object]]


class MySqlApplier:
    """A `consumer.targets.dialect_components.NetChangeApplier` over PyMySQL."""

    def __init__(self, link: MySqlLink, books: Bookkeeping) -> None:
        self._link = link
        self._books = books
        self._tables = TableCache(_prepare_table)
        self.forget_table = self._tables.forget_table

    def on_transaction_end(self, *, committed: bool) -> None:
        """Do nothing: no state outlives a statement."""

    def apply_net_change(self, unit: ApplyUnit, net: NetChange, displacing: str | None) -> int:
        prepared = self._tables.get(net.table)
        key_at = net.table.key_at
        deleted = [*net.deletes, *(tuple(row[at] for at in key_at) for row in net.replaces)]
        self._delete_rows(prepared, _render_literals(prepared.key, deleted))
        kept = 0 if displacing is None else self._displace_rows(prepared, net, unit, displacing)
        self._put_rows(prepared, net.snapshot)
        self._insert_rows(prepared, net.replaces)
        self._update_rows(prepared, net.updates)
        return kept

    def _compute_size_limit(self) -> int:
        return min(STATEMENT_BYTES, self._link.max_packet - PACKET_RESERVE)

    def _delete_rows(self, prepared: _Prepared, keys: list[list[str]]) -> None:
        plan = prepared.plan
        # the names are repeated only in composite keys; 40 covers them
        sizes = [sum(map(measure_bytes, key)) + 40 * (len(key) - 1) for key in keys]
        for start, end in split_chunks(sizes, self._compute_size_limit()):
            self._link.send_statement(
                f"DELETE FROM {plan.name} WHERE {render_key_predicate(plan.key_columns, keys[start:end])}"
            )

    def _insert_rows(self, prepared: _Prepared, rows: Sequence[Row]) -> None:
        rendered = _render_tuples(prepared.row, rows)
        for start, end in split_chunks(
            [measure_bytes(text) for text in rendered], self._compute_size_limit()
        ):
            self._send_rows(prepared, rendered[start:end], "")

    def _update_rows(self, prepared: _Prepared, rows: Sequence[Row]) -> None:
        rendered = _render_tuples(prepared.row, rows)
        for start, end in split_chunks(
            [measure_bytes(text) for text in rendered], self._compute_size_limit()
        ):
            self._write_over(prepared, rows[start:end], rendered[start:end])

    def _put_rows(self, prepared: _Prepared, rows: Sequence[Row]) -> None:
        """Write rows of a snapshot over existing ones; if none exists, a plain insert is cheaper and
        locks less.
        """
        rendered = _render_tuples(prepared.row, rows)
        for start, end in split_chunks(
            [measure_bytes(text) for text in rendered], self._compute_size_limit()
        ):
            if self._count_existing(prepared, rows[start:end]):
                self._write_over(prepared, rows[start:end], rendered[start:end])
            else:
                self._send_rows(prepared, rendered[start:end], "")

    def _write_over(self, prepared: _Prepared, rows: Sequence[Row], rendered: list[str]) -> None:
        self._send_rows(prepared, rendered, prepared.plan.on_duplicate)
        if prepared.table.table.unique and (found := self._count_existing(prepared, rows)) != len(rows):
            raise UniqueViolationError(
                f"of {len(rows)} rows written to {prepared.plan.table_name}, only {found} exist: a "
                "missing row has a unique value that another row already has"
            )

    def _send_rows(self, prepared: _Prepared, rendered: list[str], tail: str) -> None:
        body = ",".join(rendered)
        if len(rendered) == 1 and measure_bytes(body) > self._link.max_packet - PACKET_RESERVE:
            raise RefusedError(
                f"a row of {prepared.plan.table_name} needs {measure_bytes(body)} bytes, more than the "
                f"target takes in one statement (max_allowed_packet = {self._link.max_packet})",
                "raise it there",
            )
        self._link.send_statement(f"{prepared.plan.insert}{body}{tail}")

    def _count_existing(self, prepared: _Prepared, rows: Sequence[Row]) -> int:
        """Return how many of the keys of `rows` exist."""
        plan, key_at = prepared.plan, prepared.table.key_at
        keys = _render_literals(prepared.key, [tuple(row[at] for at in key_at) for row in rows])
        [(found,)] = self._link.send_statement(
            f"SELECT COUNT(*) FROM {plan.name} WHERE {render_key_predicate(plan.key_columns, keys)}"
        )
        return int(str(found))

    def _displace_rows(self, prepared: _Prepared, net: NetChange, unit: ApplyUnit, displacing: str) -> int:
        """Remove rows that hold needed unique values. Return how many were written to rowlock_displaced."""
        kept = 0
        needed = list(net.rows)
        for index in prepared.plan.unique:
            for at in range(0, len(needed), DISPLACED_PER_STATEMENT):
                where = self._build_foreign_predicate(
                    prepared, index, needed[at : at + DISPLACED_PER_STATEMENT]
                )
                if where:
                    kept += self._keep_whole(prepared.plan, where, unit, displacing)
                    self._link.send_statement(f"DELETE FROM {prepared.plan.name} WHERE {where}")
        return kept

    def _keep_whole(self, plan: MySqlPlan, where: str, unit: ApplyUnit, displacing: str) -> int:
        """Write the rows to rowlock_displaced with all their columns, and lock them so that they cannot
        change before.

        Returns how many there were.
        """
        rows = self._link.select_whole(f"SELECT * FROM {plan.name} WHERE {where} FOR UPDATE")
        for whole in rows:
            params = [unit.pipeline, unit.topic, plan.table_name, _encode_json(whole), displacing]
            self._link.execute(self._books.displaced.build_insert(1), list(params))
        return len(rows)

    def _build_foreign_predicate(self, prepared: _Prepared, index: UniqueIndex, rows: Sequence[Row]) -> str:
        """Return the predicate "has a row's value in `index`, and another key"; "" if all values are NULL."""
        return " OR ".join(
            [text for row in rows if (text := self._build_row_predicate(prepared, index, row))]
        )

    def _build_row_predicate(self, prepared: _Prepared, index: UniqueIndex, row: Row) -> str | None:
        """Return the predicate "has this row's value in `index`, and another key"."""
        table = prepared.table
        [values] = _render_literals(prepared.row, [row])
        at = table.table.find_ordinals(index.columns)
        if any(row[i] is None for i in at):
            return None
        same = []
        for part, i in zip(index.parts, at, strict=True):
            column = bare(part.column)
            cut = f"LEFT({{}}, {part.prefix})" if part.prefix else "{}"
            same.append(f"{cut.format(column)} = {cut.format(values[i])}")
        [key] = _render_literals(prepared.key, [tuple(row[i] for i in table.key_at)])
        return f"({' AND '.join(same)} AND NOT ({render_key_predicate(prepared.plan.key_columns, [key])}))"


def _render_literals(encode: Callable[[Row], Sequence[object]], rows: Sequence[Row]) -> list[list[str]]:
    """Return every value as the driver writes it in a statement."""
    return [[render_literal(value) for value in encode(row)] for row in rows]


def _render_tuples(encode: Callable[[Row], Sequence[object]], rows: Sequence[Row]) -> list[str]:
    return ["(" + ",".join([render_literal(value) for value in encode(row)]) + ")" for row in rows]


def _prepare_table(table: TargetTable) -> _Prepared:
    return _Prepared(table, build_mysql_plan(table), to_mysql(table.table), make_key_encoder(table.table))


def _encode_json(row: dict[str, object]) -> str:
    return orjson.dumps(row, default=_to_json_value).decode()


def _to_json_value(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
