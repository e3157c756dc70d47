"""A table of accounts and its changed definitions."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.names import NameRules
from schemas.wire.event import ColumnChanges
from tests.kits.apply import TEXT, account_table

TABLE = account_table()


INT = ColumnType(kind=Kind.INT, bits=32)


BIG = ColumnType(kind=Kind.INT, bits=64)


def text(length: int, kind: Kind = Kind.VARCHAR, **more: Any) -> ColumnType:
    return ColumnType(kind=kind, length=length, **{**TEXT, **more})


def column(name: str, type_: ColumnType = INT, **more: Any) -> Column:
    return Column(name=name, type=type_, **more)


def unique(name: str, *columns: str, prefix: int | None = None) -> UniqueIndex:
    return UniqueIndex(name=name, parts=tuple(IndexPart(column=each, prefix=prefix) for each in columns))


def added(table: Table, *columns: Column) -> Table:
    return replace(table, columns=table.columns + columns)


def without(table: Table, *names: str) -> Table:
    return replace(
        table,
        columns=tuple(each for each in table.columns if each.name not in names),
        unique=tuple(each for each in table.unique if not set(names).intersection(each.columns)),
    )


def changed(table: Table, name: str, /, **more: Any) -> Table:
    return replace(table, columns=tuple(replace(c, **more) if c.name == name else c for c in table.columns))


def renamed(table: Table, old: str, new: str) -> Table:
    def index(found: UniqueIndex) -> UniqueIndex:
        parts = (replace(part, column=new) if part.column == old else part for part in found.parts)
        return replace(found, parts=tuple(parts))

    return replace(
        changed(table, old, name=new), key=index(table.key), unique=tuple(map(index, table.unique))
    )


CHANGES = ColumnChanges


FOLLOWED: dict[str, tuple[Table, ColumnChanges]] = {
    "add": (added(TABLE, column("n")), CHANGES(added=("n",))),
    "add with a default": (added(TABLE, column("n", default="7", nullable=False)), CHANGES(added=("n",))),
    "add not null": (added(TABLE, column("n", nullable=False)), CHANGES(added=("n",))),
    "drop": (without(TABLE, "note"), CHANGES(dropped=("note",))),
    "drop a unique column": (without(TABLE, "email"), CHANGES(dropped=("email",))),
    "drop and add": (changed(without(TABLE, "note"), "id"), CHANGES(dropped=("note",))),
    "rename": (renamed(TABLE, "note", "remark"), CHANGES(renamed={"note": "remark"})),
    "rename the key": (renamed(TABLE, "id", "number"), CHANGES(renamed={"id": "number"})),
    "rename and add under the old name": (
        added(renamed(TABLE, "note", "remark"), column("note")),
        CHANGES(renamed={"note": "remark"}, added=("note",)),
    ),
    "rename and widen": (
        changed(renamed(TABLE, "note", "remark"), "remark", type=text(500)),
        CHANGES(renamed={"note": "remark"}, modified=("remark",)),
    ),
    "widen": (changed(TABLE, "version", type=BIG), CHANGES(modified=("version",))),
    "no longer required": (changed(TABLE, "owner", nullable=True), CHANGES(modified=("owner",))),
    "collation": (changed(TABLE, "note", type=text(200, collation="utf8mb4_general_ci")),
     CHANGES(converted=True)),
    "order": (replace(TABLE, columns=TABLE.columns[::-1]), CHANGES(modified=("note",))),
    "new unique index": (replace(TABLE, unique=(*TABLE.unique, unique("u", "owner"))), CHANGES()),
    "dropped unique index": (replace(TABLE, unique=()), CHANGES()),
    "default": (changed(TABLE, "note", default="x"), CHANGES(modified=("note",))),
}  # fmt: skip


FOLDED = NameRules(folds=True)
