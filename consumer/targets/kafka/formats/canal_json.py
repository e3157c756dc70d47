"""Canal's flat messages: one message for each row, with every value as a string (canal_json_columns).
Pure.

`database` and `table` are those of the target, because a consumer knows no others. `es` and `ts` are
the commit time, `id` the place in the source's log file. TRUNCATE and definitions are messages with
`isDdl`; their effect is in `sql`. A TRUNCATE of one source of a shared table does not empty it: it is a
DELETE of that source's rows, and names the source in a comment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from consumer.targets.kafka.formats.canal_json_columns import CanalColumn, build_canal_column
from consumer.targets.kafka.formats.keyed import (
    VALUE_ERRORS,
    KeyedRecords,
    RowConverter,
    refuse_uncarried_column,
)
from consumer.targets.kafka.formats.model import FormattedRecord, Place, RoutedTable, State
from consumer.targets.kafka.formats.older_types import ImageReader
from schemas.errors import EnvelopeError
from schemas.problems import Problem
from schemas.table.model import Column, Row, Table, UniqueIndex
from schemas.table.typemap import quote_literal

_REFUSAL = Problem(
    "Canal's form cannot hold this value (a label that the column's type does not have)",
    "take `format: rowlock`, or leave the column out of the route (`columns`)",
)
_dumps = msgspec.json.encode
_ORIGIN = re.compile(r"/\* rowlock (\[.*\]) \*/\Z", re.DOTALL)


class CanalJson(KeyedRecords):
    """The format `canal-json`.

    Keys are JSON objects of the routing key's columns, with values as strings like in `data`.
    """

    word = "canal-json"

    def __init__(self, routed: RoutedTable) -> None:
        super().__init__(routed)
        table = routed.table
        self._columns = [self._get_canal_column(column) for column in table.columns]
        names, writers = table.column_names, [each.write for each in self._columns]
        self._data = RowConverter(names, writers, _REFUSAL)
        self._values = ImageReader(routed, [each.read for each in self._columns], writers)
        at = routed.key_at
        self._key_data = RowConverter([names[i] for i in at], [writers[i] for i in at], _REFUSAL)
        at = routed.primary_at
        self._primary_data = RowConverter([names[i] for i in at], [writers[i] for i in at], _REFUSAL)
        self._named = {"database": table.db, "table": table.name}
        self._types: dict[str, Any] = {
            "mysqlType": {name: each.mysql for name, each in zip(names, self._columns, strict=True)},
            "pkNames": [names[i] for i in routed.primary_at],
            "sqlType": {name: each.sql for name, each in zip(names, self._columns, strict=True)},
        }

    def _get_canal_column(self, column: Column) -> CanalColumn:
        found = build_canal_column(column.type)
        if found is None:
            raise refuse_uncarried_column(self.routed, column.name, f"the type {column.type.kind}", self.word)
        return found

    def encode_key(self, row: Row) -> bytes:
        return _dumps(self._key_data([row[i] for i in self.routed.key_at]))

    def encode_primary_key(self, row: Row) -> dict[str, object]:
        return self._primary_data([row[i] for i in self.routed.primary_at])

    def encode_insert(self, after: Row, place: Place) -> bytes:
        return self._encode_message("INSERT", place, data=[self._data(after)], **self._types)

    def encode_update(self, before: Row, after: Row, place: Place) -> bytes:
        """Return the value of an update. `old` has only the columns that changed."""
        was, now = self._data(before), self._data(after)
        old = {name: value for name, value in was.items() if value != now[name]}
        return self._encode_message("UPDATE", place, data=[now], old=[old], **self._types)

    def encode_delete(self, before: Row, place: Place) -> bytes:
        return self._encode_message("DELETE", place, data=[self._data(before)], **self._types)

    def build_clear_records(self, where: dict[str, str] | None, place: Place) -> list[FormattedRecord]:
        """Return the message of a TRUNCATE; with `where`, of a DELETE of these rows.

        A consumer that executed a TRUNCATE would lose the rows of all other sources.
        """
        origin, table = self.routed.origin, _quote_table(self.routed.table)
        if not where:
            return [FormattedRecord(None, self._encode_ddl("TRUNCATE", f"TRUNCATE TABLE {table}", place))]
        rows = " AND ".join(f"{_quote_name(name)} = {quote_literal(value)}" for name, value in where.items())
        origin_text = _dumps([origin.source, origin.db, origin.table]).decode().replace("*/", "*\\/")
        return [
            FormattedRecord(
                None,
                self._encode_ddl(
                    "QUERY", f"DELETE FROM {table} WHERE {rows} /* rowlock {origin_text} */", place
                ),
            )
        ]

    def build_definition_records(self, definition: Table, place: Place) -> list[FormattedRecord]:
        """Return the message of a definition: a CREATE TABLE with the columns and keys from here on."""
        return [
            FormattedRecord(None, self._encode_ddl("CREATE", self._render_create_table(definition), place))
        ]

    def decode_state(self, key: bytes | None, value: bytes | None) -> State | None:
        """Return the effect of a record on the topic's state (see RecordFormat.decode_state).

        Raises EnvelopeError if the record does not have this format. Of a record with other values of
        added columns, no values are decoded. Columns that the table no longer has are left out, those
        that the record does not have yet are missing, and those of an older type are None.
        """
        if value is None:
            return State(key)
        try:
            message = msgspec.json.decode(value)
            kind = message["type"]
            if message["isDdl"]:
                return self._decode_cleared_state(kind, message["sql"])
            values = message["data"][0]
            # only these values identify a record's table: another table's record has values of other
            # types
            image = {} if self._is_other_origin(values) else self._values(values)
            return State(key, deleted=image) if kind == "DELETE" else State(key, image)
        except (msgspec.DecodeError, AttributeError, IndexError, *VALUE_ERRORS) as error:
            raise EnvelopeError(
                f"topic {self.routed.topic} has a record that format {self.word} does not write "
                f"({type(error).__name__}: {error})",
                "nothing else may write to the topic, and another format needs another topic",
            ) from error

    def _is_other_origin(self, values: Mapping[str, object]) -> bool:
        return any(values.get(name, value) != value for name, value in self.routed.added)

    def _decode_cleared_state(self, kind: str, sql: str) -> State | None:
        if kind == "TRUNCATE":
            return State(None, cleared=True)
        found = _ORIGIN.search(sql) if kind == "QUERY" else None
        if found is None:
            return None
        source, db, table = msgspec.json.decode(found[1])
        return State(None, cleared=True, origin=(source, db, table))

    def _encode_ddl(self, kind: str, sql: str, place: Place) -> bytes:
        return self._encode_message(kind, place, ddl=True, sql=sql)

    def _encode_message(
        self, kind: str, place: Place, *, ddl: bool = False, sql: str = "", **fields: object
    ) -> bytes:
        return _dumps(
            {
                "data": fields.get("data"),
                "database": self._named["database"],
                "es": place.ts_ms,
                "id": place.position[2],
                "isDdl": ddl,
                "mysqlType": fields.get("mysqlType"),
                "old": fields.get("old"),
                "pkNames": fields.get("pkNames"),
                "sql": sql,
                "sqlType": fields.get("sqlType"),
                "table": self._named["table"],
                "ts": place.ts_ms,
                "type": kind,
            }
        )

    def _render_create_table(self, table: Table) -> str:
        lines = [
            f"{_quote_name(column.name)} "
            f"{self._get_canal_column(column).mysql}{'' if column.nullable else ' NOT NULL'}"
            for column in table.columns
        ]
        lines.append(f"PRIMARY KEY {_render_index_parts(table.key)}")
        lines += [
            f"UNIQUE KEY {_quote_name(index.name)} {_render_index_parts(index)}" for index in table.unique
        ]
        return f"CREATE TABLE IF NOT EXISTS {_quote_table(table)} ({', '.join(lines)})"


def _quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quote_table(table: Table) -> str:
    return f"{_quote_name(table.db)}.{_quote_name(table.name)}"


def _render_index_parts(index: UniqueIndex) -> str:
    parts = (
        f"{_quote_name(part.column)}{'' if part.prefix is None else f'({part.prefix})'}"
        for part in index.parts
    )
    return f"({', '.join(parts)})"
