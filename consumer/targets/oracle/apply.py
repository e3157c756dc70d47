"""Net changes into Oracle: array-bound DELETE, INSERT and MERGE, sorted by key, a savepoint for each
array.

A MERGE decides by the key alone, so a row of another key under one of the unique values is an error
(ORA-00001), whether the row of the key exists or not. Tables with LOBs get an UPDATE, and an INSERT of
the rows that it did not match, which decide by the key, too.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import compress
from typing import TYPE_CHECKING, Any

import orjson

from consumer.ordering.model import ApplyUnit, NetChange, TargetTable
from consumer.targets.bookkeeping import Bookkeeping
from consumer.targets.oracle.sql import OraclePlan, build_oracle_plan, quote_bare, restore_spelling
from consumer.targets.oracle.values import list_input_sizes, to_oracle, translate_refusals
from consumer.targets.sql import TableCache
from schemas.table.model import Key, Row, UniqueIndex

if TYPE_CHECKING:
    from consumer.targets.oracle.connection import OracleLink

#: Rows of one array, and of one search for rows to displace.
ROWS = 2000
DISPLACED_ROWS = 100


@dataclass(frozen=True)
class _Prepared:
    """A table prepared for writing. `sizes`, `key_sizes`: types of a row's and of a key's values."""

    table: TargetTable
    plan: OraclePlan
    row: Callable[[Row], Sequence[object]]
    key: Callable[[Key], Sequence[object]]
    sizes: list[Any]
    key_sizes: list[Any]


class OracleApplier:
    """A `consumer.targets.dialect_components.NetChangeApplier` over python-oracledb."""

    def __init__(self, link: OracleLink, books: Bookkeeping) -> None:
        self._link = link
        self._books = books
        self._tables = TableCache(_prepare_table)
        self.forget_table = self._tables.forget_table

    def on_transaction_end(self, *, committed: bool) -> None:
        """Do nothing: no state outlives a statement."""

    def apply_net_change(self, unit: ApplyUnit, net: NetChange, displacing: str | None) -> int:
        with translate_refusals():
            prepared = self._tables.get(net.table)
            deleted = [
                *map(prepared.key, net.deletes),
                *(prepared.key(_get_row_key(net.table, row)) for row in net.replaces),
            ]
            read, replaces, updates = (
                [prepared.row(row) for row in rows] for rows in (net.snapshot, net.replaces, net.updates)
            )
        self._run_array(prepared.plan.delete, deleted, prepared.key_sizes)
        kept = (
            0
            if displacing is None
            else self._displace_rows(prepared, [*read, *replaces, *updates], unit, displacing)
        )
        self._write_over(prepared, read)
        self._run_array(prepared.plan.insert, replaces, prepared.sizes)
        self._write_over(prepared, updates)
        return kept

    def _run_array(self, statement: str, rows: Sequence[Sequence[object]], sizes: Sequence[Any]) -> list[int]:
        """Run a statement for each of `rows`; return how many rows each of them matched."""
        counts: list[int] = []
        for at in range(0, len(rows), ROWS):
            counts += self._link.execute_array(statement, rows[at : at + ROWS], sizes)
        return counts

    def _write_over(self, prepared: _Prepared, rows: Sequence[Sequence[object]]) -> None:
        """Write rows over those of the same keys, or insert missing ones.

        Columns that rowlock does not know keep their values.
        """
        if prepared.plan.upsert is None:
            self._update_rows(prepared, rows)
            return
        order = (*prepared.table.key_at, *prepared.plan.others_at, *range(len(prepared.sizes)))
        sizes = [prepared.sizes[at] for at in order]
        self._run_array(prepared.plan.upsert, _reorder_values(rows, order), sizes)

    def _update_rows(self, prepared: _Prepared, rows: Sequence[Sequence[object]]) -> None:
        plan, key_at = prepared.plan, prepared.table.key_at
        order = (*plan.others_at, *key_at)
        counts = self._run_array(
            plan.update, _reorder_values(rows, order), [prepared.sizes[at] for at in order]
        )
        missing = [*compress(rows, (not count for count in counts))]
        self._run_array(plan.insert, missing, prepared.sizes)

    def _displace_rows(
        self, prepared: _Prepared, needed: Sequence[Sequence[object]], unit: ApplyUnit, displacing: str
    ) -> int:
        """Remove rows that hold needed unique values. Return how many were written to rowlock_displaced."""
        kept = 0
        for index in prepared.plan.unique:
            for at in range(0, len(needed), DISPLACED_ROWS):
                where, params = _build_foreign_predicate(prepared, index, needed[at : at + DISPLACED_ROWS])
                if where:
                    kept += self._move_to_displaced(prepared, where, params, unit, displacing)
        return kept

    def _move_to_displaced(
        self, prepared: _Prepared, where: str, params: list[object], unit: ApplyUnit, displacing: str
    ) -> int:
        """Write rows to rowlock_displaced with all their columns, and delete them. Return how many."""
        plan = prepared.plan
        rows = self._link.select_whole(
            f"SELECT t.* FROM {plan.name} t WHERE {where} FOR UPDATE WAIT 10", params
        )
        place = prepared.table.name
        parameters: list[object] = []
        for whole in rows:
            named = {restore_spelling(name, place): value for name, value in whole.items()}
            parameters += [unit.pipeline, unit.topic, plan.table_name, _encode_json(named), displacing]
        if rows:
            self._link.execute(self._books.displaced.build_insert(len(rows)), parameters)
            with self._link.translate_errors(plan.name), self._link.raw.cursor() as cursor:
                cursor.execute(f"DELETE FROM {plan.name} t WHERE {where}", params)
        return len(rows)


def _reorder_values(rows: Sequence[Sequence[object]], order: Sequence[int]) -> list[list[object]]:
    return [[row[at] for at in order] for row in rows]


def _get_row_key(table: TargetTable, row: Row) -> Key:
    return tuple(row[at] for at in table.key_at)


def _build_foreign_predicate(
    prepared: _Prepared, index: UniqueIndex, rows: Sequence[Sequence[object]]
) -> tuple[str, list[object]]:
    """Return the predicate "has a row's value in `index`, and another key", with its values; "" if no
    value can collide.
    """
    parts: list[str] = []
    params: list[object] = []

    def mark(value: object) -> str:
        params.append(value)
        return f":{len(params)}"

    at = prepared.table.table.find_ordinals(index.columns)
    for row in rows:
        values = [row[i] for i in at]
        nulls = [value is None for value in values]
        if all(nulls) or (index.nulls_distinct and any(nulls)):
            continue
        same = " AND ".join(
            f"t.{quote_bare(column)} IS NULL" if value is None else f"t.{quote_bare(column)} = {mark(value)}"
            for column, value in zip(index.columns, values, strict=True)
        )
        own = " AND ".join(
            f"t.{column} = {mark(row[i])}"
            for column, i in zip(prepared.plan.key_columns, prepared.table.key_at, strict=True)
        )
        parts.append(f"({same} AND NOT ({own}))")
    return " OR ".join(parts), params


def _prepare_table(table: TargetTable) -> _Prepared:
    model = table.table
    key = model.key.columns
    return _Prepared(
        table,
        build_oracle_plan(table),
        to_oracle(model),
        to_oracle(model, key),
        list_input_sizes(model),
        list_input_sizes(model, key),
    )


def _encode_json(row: dict[str, object]) -> str:
    return orjson.dumps(row, default=_to_json_value).decode()


def _to_json_value(value: object) -> object:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and abs(value) < 1 << 53 else str(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
