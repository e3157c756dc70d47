"""Debezium's envelope, without and with schemas, as Debezium 3's connector for MySQL writes it by
Connect's JSON converter. Pure.

It contains less about the place at the source than rowlock's own format: `file` is "binlog." and the
number of the source's file, `gtid`, `thread` and `query` are null, `server_id` is 0. Rows of a snapshot
are `r`. TRUNCATE is `t`, for the rows of `source.name`, `source.db` and `source.table`. There are no
definition events: with schemas, each record has its own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from consumer.targets.kafka.formats.debezium_columns import (
    ColumnForm,
    Schema,
    build_column_field,
    build_debezium_form,
)
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
from schemas.table.model import Row, Table

DEBEZIUM_VERSION = "3.0.0.rowlock"
"""`source.version`: the version of the form, marked as written by rowlock."""
_REFUSAL = Problem(
    "Debezium's form cannot hold this value (a zero date, a day that no calendar has, a year beyond 1 "
    "to 9999, an SRID beyond int32)",
    "take `format: rowlock` or `canal-json`, or leave the column out of the route (`columns`)",
)
_dumps = msgspec.json.encode


class Debezium(KeyedRecords):
    """The format `debezium`: the envelope alone. `word`: the format's name in the configuration."""

    word = "debezium"

    def __init__(self, routed: RoutedTable) -> None:
        super().__init__(routed)
        self._forms = [self._get_column_form(i) for i in range(len(routed.table.columns))]
        names = routed.table.column_names
        writers = [form.write for form in self._forms]
        self._image = RowConverter(names, writers, _REFUSAL)
        self._values = ImageReader(routed, [form.read for form in self._forms], writers)
        at = routed.key_at
        self._key_image = RowConverter([names[i] for i in at], [writers[i] for i in at], _REFUSAL)
        at = routed.primary_at
        self._primary_image = RowConverter([names[i] for i in at], [writers[i] for i in at], _REFUSAL)
        self._source = _SourceBlock(routed)
        self._origin = (routed.origin.source, routed.origin.db, routed.origin.table)

    def _get_column_form(self, at: int) -> ColumnForm:
        column = self.routed.table.columns[at]
        form = build_debezium_form(column.type)
        if form is None:
            seen = f"{column.type.kind} with {column.type.fsp} digits of a second"
            raise refuse_uncarried_column(self.routed, column.name, seen, self.word)
        return form

    def encode_key(self, row: Row) -> bytes:
        return _dumps(self._key_image([row[i] for i in self.routed.key_at]))

    def encode_primary_key(self, row: Row) -> dict[str, object]:
        return self._primary_image([row[i] for i in self.routed.primary_at])

    def build_move_headers(self, other: bytes | None, *, to: bool) -> tuple[tuple[str, bytes], ...]:
        """Return the headers by which Debezium links the two records of a move."""
        if other is None:
            return ()
        return (("__debezium.newkey" if to else "__debezium.oldkey", other),)

    def encode_insert(self, after: Row, place: Place) -> bytes:
        return self._encode_event("r" if place.snapshot else "c", None, after, place)

    def encode_update(self, before: Row, after: Row, place: Place) -> bytes:
        return self._encode_event("u", before, after, place)

    def encode_delete(self, before: Row, place: Place) -> bytes:
        return self._encode_event("d", before, None, place)

    def build_clear_records(self, where: dict[str, str] | None, place: Place) -> list[FormattedRecord]:
        """Return the record of a TRUNCATE of this origin's rows, which `source` names; `where` is not
        used.
        """
        return [FormattedRecord(None, self._encode_event("t", None, None, place))]

    def build_definition_records(self, definition: Table, place: Place) -> list[FormattedRecord]:
        """Return no record: Debezium has no definition event in a table's topic."""
        return []

    def decode_state(self, key: bytes | None, value: bytes | None) -> State | None:
        """Return the effect of a record on the topic's state (see RecordFormat.decode_state).

        Raises EnvelopeError if the record does not have this format. Columns that the table no longer
        has are left out, those that the record does not have yet are missing, and those of an older
        type are None.
        """
        if value is None:
            return State(key)
        try:
            event = self._unwrap_payload(msgspec.json.decode(value))
            op, source = event["op"], event["source"]
            origin = (str(source["name"]), str(source["db"]), str(source["table"]))
            if op == "t":
                return State(None, cleared=True, origin=origin)
            mine = origin == self._origin
            image = self._values(event["before" if op == "d" else "after"]) if mine else {}
            return (
                State(key, None, origin=origin, deleted=image)
                if op == "d"
                else State(key, image, origin=origin)
            )
        except (msgspec.DecodeError, AttributeError, *VALUE_ERRORS) as error:
            raise EnvelopeError(
                f"topic {self.routed.topic} has a record that format {self.word} does not write "
                f"({type(error).__name__}: {error})",
                "nothing else may write to the topic, and another format needs another topic",
            ) from error

    def _encode_event(self, op: str, before: Row | None, after: Row | None, place: Place) -> bytes:
        images = [b"null" if row is None else _dumps(self._image(row)) for row in (before, after)]
        ms = place.ts_ms
        end = f',"transaction":null,"op":"{op}","ts_ms":{ms},"ts_us":{ms * 1000},"ts_ns":{ms * 1_000_000}}}'
        return self._wrap_payload(
            b'{"before":%b,"after":%b,"source":%b%b' % (*images, self._source(place).encode(), end.encode())
        )

    def _wrap_payload(self, payload: bytes) -> bytes:
        return payload

    def _unwrap_payload(self, found: Any) -> Any:
        return found


class DebeziumWithSchemas(Debezium):
    """The format `debezium-schemas`: each key and value is preceded by its Connect schema."""

    word = "debezium-schemas"

    def __init__(self, routed: RoutedTable) -> None:
        super().__init__(routed)
        fields = [build_column_field(*each) for each in zip(routed.table.columns, self._forms, strict=True)]
        key = _build_struct_schema([fields[i] for i in routed.key_at], f"{routed.topic}.Key")
        self._key_start = b'{"schema":%b,"payload":' % _dumps(key)
        self._start = b'{"schema":%b,"payload":' % _dumps(_build_envelope_schema(routed, fields))

    def encode_key(self, row: Row) -> bytes:
        return self._key_start + super().encode_key(row) + b"}"

    def _wrap_payload(self, payload: bytes) -> bytes:
        return self._start + payload + b"}"

    def _unwrap_payload(self, found: Any) -> Any:
        return found["payload"]


class _SourceBlock:
    """Renders the `source` of an event."""

    def __init__(self, routed: RoutedTable) -> None:
        origin = routed.origin
        known = {"version": DEBEZIUM_VERSION, "connector": origin.connector, "name": origin.source}
        self._start = _dumps(known).decode()[:-1] + ',"ts_ms":'
        self._db = f'"db":{_dumps(origin.db).decode()},"sequence":null,"ts_us":'
        self._table = f'"table":{_dumps(origin.table).decode()},"server_id":0,"gtid":null,"file":"binlog.'

    def __call__(self, place: Place) -> str:
        _, file, pos, row = place.position
        ms = place.ts_ms
        snapshot = "true" if place.snapshot else "false"
        return (
            f'{self._start}{ms},"snapshot":"{snapshot}",{self._db}{ms * 1000},'
            f'"ts_ns":{ms * 1_000_000},{self._table}{file:06d}",'
            f'"pos":{pos},"row":{max(row, 0)},"thread":null,"query":null}}'
        )


def _build_struct_schema(
    fields: list[Schema], name: str, *, optional: bool = False, version: int = 0
) -> Schema:
    schema: Schema = {"type": "struct", "fields": fields, "optional": optional, "name": name}
    return {**schema, "version": version} if version else schema


def _build_field_schema(type_: str, name: str, *, optional: bool = False) -> Schema:
    return {"type": type_, "optional": optional, "field": name}


def _build_envelope_schema(routed: RoutedTable, columns: list[Schema]) -> Schema:
    image = _build_struct_schema(columns, f"{routed.topic}.Value", optional=True)
    transaction = [
        _build_field_schema("string", "id"),
        _build_field_schema("int64", "total_order"),
        _build_field_schema("int64", "data_collection_order"),
    ]
    fields = [
        {**image, "field": "before"},
        {**image, "field": "after"},
        {**_build_source_schema(routed.origin.connector), "field": "source"},
        {
            **_build_struct_schema(transaction, "event.block", optional=True, version=1),
            "field": "transaction",
        },
        _build_field_schema("string", "op"),
        *(_build_field_schema("int64", name, optional=True) for name in ("ts_ms", "ts_us", "ts_ns")),
    ]
    return _build_struct_schema(fields, f"{routed.topic}.Envelope", version=2)


def _build_source_schema(connector: str) -> Schema:
    snapshot: Schema = {
        "type": "string",
        "optional": True,
        "name": "io.debezium.data.Enum",
        "version": 1,
        "parameters": {
            "allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
        },
        "default": "false",
        "field": "snapshot",
    }
    fields = [
        *(_build_field_schema("string", name) for name in ("version", "connector", "name")),
        _build_field_schema("int64", "ts_ms"),
        snapshot,
        _build_field_schema("string", "db"),
        _build_field_schema("string", "sequence", optional=True),
        *(_build_field_schema("int64", name, optional=True) for name in ("ts_us", "ts_ns")),
        _build_field_schema("string", "table", optional=True),
        _build_field_schema("int64", "server_id"),
        _build_field_schema("string", "gtid", optional=True),
        _build_field_schema("string", "file"),
        _build_field_schema("int64", "pos"),
        _build_field_schema("int32", "row"),
        _build_field_schema("int64", "thread", optional=True),
        _build_field_schema("string", "query", optional=True),
    ]
    return _build_struct_schema(fields, f"io.debezium.connector.{connector}.Source", version=1)
