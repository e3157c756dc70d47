"""Net changes into PostgreSQL: COPY into a temporary table and three statements, or few direct
statements when small.

Updates in place are `INSERT … ON CONFLICT (key) DO UPDATE`: the key is the only index that may resolve
a conflict, so a row of another key under one of the unique values is an error (23505), whether the row
of the key exists or not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consumer.ordering.model import ApplyUnit, NetChange, TargetTable
from consumer.targets.bookkeeping import Bookkeeping
from consumer.targets.postgres.connection import translate_refusals
from consumer.targets.postgres.sql import (
    DELETE,
    REPLACE,
    SNAPSHOT,
    UPDATE,
    PostgresPlan,
    bare,
    build_postgres_plan,
)
from consumer.targets.sql import TableCache, qualify_table, render_keys_in
from schemas.table.model import Key, Row
from schemas.values.postgres import copy_line, escape_copy, to_postgres, to_postgres_columns

if TYPE_CHECKING:
    import psycopg

    from consumer.targets.postgres.connection import PostgresLink

#: Up to this many net rows are written by direct statements, without COPY, in one round trip.
MAX_DIRECT_ROWS = 50
COPY_BLOCK = 1000


@dataclass(frozen=True)
class _Prepared:
    """A table prepared for writing: rendered statements and value functions."""

    plan: PostgresPlan
    row: Callable[[Row], Sequence[object]]
    key: Callable[[Key], Sequence[object]]
    line: Callable[[Row], str]
    key_line: Callable[[Key], str]


class PostgresApplier:
    """A NetChangeApplier (consumer.targets.dialect_components) over psycopg.

    A temporary table lasts as long as its connection.
    """

    def __init__(self, link: PostgresLink, books: Bookkeeping) -> None:
        self._link = link
        self._books = books
        self._tables = TableCache(self._prepare_table, self._drop_temporary)
        self.forget_table = self._tables.forget_table
        self._numbers = itertools.count()
        self._connection: object = None
        self._temporary: set[str] = set()
        self._uncommitted: set[str] = set()
        self._filled: set[str] = set()  # used in this transaction; they are emptied at its end

    def apply_net_change(self, unit: ApplyUnit, net: NetChange, displacing: str | None) -> int:
        names = (qualify_table(bare, net.table.schema, net.table.name), self._books.displaced.table)
        with self._link.translate_errors(*names), translate_refusals():
            prepared = self._tables.get(net.table)
            if net.size <= MAX_DIRECT_ROWS and displacing is None:
                self._apply_directly(prepared, net)
                return 0
            return self._apply_by_copy(prepared, net, unit, displacing)

    def on_transaction_end(self, *, committed: bool) -> None:
        """Forget tables that were created in a transaction that did not commit."""
        if not committed:
            self._temporary -= self._uncommitted
        self._uncommitted.clear()
        self._filled.clear()

    def _prepare_table(self, table: TargetTable) -> _Prepared:
        model = table.table
        key = to_postgres_columns(model, model.key.columns)
        plan = build_postgres_plan(table, next(self._numbers))
        return _Prepared(plan, to_postgres(model), key, copy_line(model), make_key_line_encoder(table, key))

    def _drop_temporary(self, prepared: _Prepared) -> None:
        if prepared.plan.temporary in self._temporary and self._connection is self._link.raw:
            self._run_statement(prepared.plan.drop_temporary)
            self._temporary.discard(prepared.plan.temporary)

    def _run_statement(self, text: str, params: Sequence[object] = ()) -> psycopg.Cursor[Any]:
        """Send a statement. In a pipeline its cursor has a result only after the pipeline has ended."""
        return self._link.raw.execute(text, params)

    def _apply_directly(self, prepared: _Prepared, net: NetChange) -> None:
        plan = prepared.plan
        deleted = [prepared.key(key) for key in net.deletes]
        deleted += [prepared.key(tuple(row[at] for at in net.table.key_at)) for row in net.replaces]
        replaces = [prepared.row(row) for row in net.replaces]
        updates = [prepared.row(row) for row in net.updates]
        snapshot = [prepared.row(row) for row in net.snapshot]
        with self._link.raw.pipeline():
            if deleted:
                text, params = render_keys_in(plan.key_columns, deleted)
                self._run_statement(f"{plan.delete_where} {text}", params)
            if snapshot:
                self._run_statement(*_render_insert(plan, snapshot, plan.on_conflict))
            if replaces:
                self._run_statement(*_render_insert(plan, replaces, ""))
            if updates:
                self._run_statement(*_render_insert(plan, updates, plan.on_conflict))

    def _apply_by_copy(
        self, prepared: _Prepared, net: NetChange, unit: ApplyUnit, displacing: str | None
    ) -> int:
        plan = prepared.plan
        kept: list[psycopg.Cursor[Any]] = []
        self._ensure_empty(plan)
        with self._link.raw.cursor() as cursor, cursor.copy(plan.copy) as copy:
            for block in copy_blocks(net, prepared.line, prepared.key_line):
                copy.write(block)
        with self._link.raw.pipeline():
            if net.deletes or net.replaces:
                self._run_statement(plan.delete_copied)
            if displacing is not None:
                kept = self._displace_rows(plan, net, unit, displacing)
            if net.snapshot:
                self._run_statement(plan.snapshot_copied)
            if net.replaces:
                self._run_statement(plan.insert_copied)
            if net.updates:
                self._run_statement(plan.upsert_copied)
        return sum(cursor.rowcount for cursor in kept)

    def _ensure_empty(self, plan: PostgresPlan) -> None:
        """Create the temporary table, once per connection, or empty it if this transaction used it before."""
        if self._connection is not self._link.raw:
            self._connection = self._link.raw
            self._temporary.clear()
        if plan.temporary not in self._temporary:
            self._run_statement(plan.create_temporary)
            self._temporary.add(plan.temporary)
            self._uncommitted.add(plan.temporary)
        elif plan.temporary in self._filled:
            self._run_statement(plan.empty)
        self._filled.add(plan.temporary)

    def _displace_rows(
        self, plan: PostgresPlan, net: NetChange, unit: ApplyUnit, displacing: str
    ) -> list[psycopg.Cursor[Any]]:
        """Remove rows that hold needed unique values.

        Return the cursors of the statements that wrote to rowlock_displaced.
        """
        kept: list[psycopg.Cursor[Any]] = []
        for delete in plan.displaced:
            text = (
                f"WITH gone AS ({delete} RETURNING row_to_json(t)::text AS whole) "
                f"INSERT INTO {self._books.displaced.place} SELECT %s, %s, %s, whole, %s FROM gone"
            )
            kept.append(self._run_statement(text, [unit.pipeline, unit.topic, plan.table_name, displacing]))
        return kept


def make_key_line_encoder(
    table: TargetTable, encode: Callable[[Key], Sequence[object]]
) -> Callable[[Key], str]:
    """Return the function from a key to a COPY line in which the other columns are NULL."""
    place = {at: i for i, at in enumerate(table.key_at)}
    columns = range(len(table.table.columns))

    def encode_key_line(key: Key) -> str:
        values = encode(key)
        return (
            "\t".join([escape_copy(str(values[place[at]])) if at in place else r"\N" for at in columns])
            + "\n"
        )

    return encode_key_line


def copy_blocks(net: NetChange, line: Callable[[Row], str], key: Callable[[Key], str]) -> Iterator[str]:
    """Yield the text of COPY in blocks of COPY_BLOCK rows; each line ends with the operation on the row."""
    work: list[tuple[str, Callable[[Row], str], list[Row]]] = [
        (DELETE, key, net.deletes),
        (REPLACE, line, net.replaces),
        (UPDATE, line, net.updates),
        (SNAPSHOT, line, net.snapshot),
    ]
    for operation, render, rows in work:
        end = f"\t{operation}\n"
        for at in range(0, len(rows), COPY_BLOCK):
            yield "".join([render(row)[:-1] + end for row in rows[at : at + COPY_BLOCK]])


def _render_insert(plan: PostgresPlan, rows: list[Sequence[object]], tail: str) -> tuple[str, list[object]]:
    values = ", ".join([plan.placeholders] * len(rows))
    return f"{plan.insert_values} {values}{tail}", [value for row in rows for value in row]
