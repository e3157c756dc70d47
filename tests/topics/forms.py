"""The five formats as their readers know them: how a row's values are spelled, and what a record
contains. Nothing of the product is in it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

Image = dict[str, Any]
"""Column → value."""
Kind = Literal["r", "c", "u", "d", "-", "t", "m"]
"""r: read by a snapshot, c: new, u: changed, d: deleted, -: a null value, t: all rows are deleted,
m: a definition."""


@dataclass(frozen=True)
class Said:
    """What a record contains. `source`: of which source's row, where the format has it; `columns`: those of a
    definition."""

    kind: Kind
    before: Image | None = None
    after: Image | None = None
    source: str | None = None
    columns: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        return json.dumps([self.kind, self.before, self.after], sort_keys=True)


class RowlockForm:
    """Rowlock's envelope: numbers as they are, a DECIMAL as text, times as wall text."""

    def spell(self, value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat(" ", "milliseconds")
        return str(value) if isinstance(value, Decimal) else value

    def expected(self, kind: Kind, before: Image | None, after: Image | None) -> Said:
        """Return what a record of that kind says in this format."""
        return Said(kind, before, after)

    def reported(self, value: bytes | None) -> Said:
        if value is None:
            return Said("-")
        event = self._encode_event(json.loads(value))
        columns = frozenset(each["name"] for each in (event.get("definition") or {}).get("columns", ()))
        return Said(event["op"], event["before"], event["after"], event["source"]["name"], columns)

    def encode_key(self, raw: bytes) -> Image:
        found: Image = self._encode_event(json.loads(raw))
        return found

    def _encode_event(self, document: Any) -> Any:
        return document


class DebeziumForm(RowlockForm):
    """Debezium's: a DECIMAL is the bytes of its whole number, a DATETIME(3) the milliseconds since 1970 of
    its wall time."""

    def spell(self, value: Any) -> Any:
        if isinstance(value, datetime):
            return round(value.replace(tzinfo=UTC).timestamp() * 1000)
        if isinstance(value, Decimal):
            number = int(value.scaleb(2))
            size = (number + (number < 0)).bit_length() // 8 + 1
            return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()
        return value


class SchemasForm(DebeziumForm):
    """Debezium's with Connect's schemas: what the schema names is what the payload has."""

    def _encode_event(self, document: Any) -> Any:
        assert list(document) == ["schema", "payload"], document
        _as_its_schema(document["schema"], document["payload"])
        return document["payload"]


def _as_its_schema(schema: Any, value: Any) -> None:
    """As Connect's JsonConverter reads it, which takes a NULL only where the schema allows it, or has a
    default for it."""
    assert value is not None or schema["optional"] or "default" in schema, schema
    if schema["type"] == "struct" and value is not None:
        assert [each["field"] for each in schema["fields"]] == list(value), (schema, value)
        for each in schema["fields"]:
            _as_its_schema(each, value[each["field"]])


class CanalForm(RowlockForm):
    """Canal-JSON: every value is a string; an update says of the row before it what changed."""

    def spell(self, value: Any) -> Any:
        spelled = super().spell(value)
        return None if spelled is None else str(spelled)

    def expected(self, kind: Kind, before: Image | None, after: Image | None) -> Said:
        return Said("c" if kind == "r" else kind, before, after)

    def reported(self, value: bytes | None) -> Said:
        if value is None:
            return Said("-")
        message = json.loads(value)
        if message["isDdl"]:
            columns = frozenset(re.findall(r"[(,] ?`([^`]+)` [a-z]", message["sql"]))
            return Said("m", columns=columns) if message["type"] == "CREATE" else Said("t")
        (row,) = message["data"]
        match message["type"]:
            case "INSERT":
                return Said("c", None, row)
            case "DELETE":
                return Said("d", row)
            case _:
                (old,) = message["old"]
                return Said("u", {**row, **old}, row)


class PlainForm(RowlockForm):
    """The row alone: nobody can tell a new one from one that changed."""

    def expected(self, kind: Kind, before: Image | None, after: Image | None) -> Said:
        return Said("-") if kind == "d" else Said("u", None, after)

    def reported(self, value: bytes | None) -> Said:
        return Said("-") if value is None else Said("u", None, json.loads(value))


FORMS: Mapping[str, RowlockForm] = {
    "rowlock": RowlockForm(),
    "debezium": DebeziumForm(),
    "debezium-schemas": SchemasForm(),
    "canal-json": CanalForm(),
    "plain": PlainForm(),
}
