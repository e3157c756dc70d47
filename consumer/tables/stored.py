"""The active definition as a unit's row in the target stores it: the source's table, and its columns in
the target.

Without I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from schemas.table.model import Table
from schemas.wire.codec import decode_table, encode_table
from schemas.wire.copies import RemovedRows
from schemas.wire.event import ColumnChanges


class _ExtraFields(msgspec.Struct, omit_defaults=True):
    """Fields beside the table's own; readers of tables ignore them."""

    written_as: dict[str, str] = msgspec.field(name="written_as", default_factory=dict)
    route_names: dict[str, str] = msgspec.field(name="by_route", default_factory=dict)
    retained_columns: tuple[str, ...] = msgspec.field(name="left", default=())
    rows_missing: bool = msgspec.field(name="lost", default=False)
    columns_stable_since: int | None = msgspec.field(name="since", default=None)
    emptied_at: int | None = msgspec.field(name="emptied", default=None)
    unmapped_columns: tuple[str, ...] = msgspec.field(name="unwritten", default=())
    snapshot: tuple[int, int] | None = msgspec.field(name="snapshot", default=None)
    removed: RemovedRows | None = msgspec.field(name="removed", default=None)
    has_kept_rows: bool = msgspec.field(name="kept", default=False)
    sweep_since: int | None = msgspec.field(name="sweep", default=None)
    target_place: tuple[str, str] | None = msgspec.field(name="place", default=None)


_SAME = tuple(name for name in _ExtraFields.__struct_fields__ if name != "written_as")
"""Fields that `StoredDefinition` has under the same name."""


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    """A unit's definition as stored in the target."""

    table: Table
    names: Mapping[str, str] = field(default_factory=dict)
    """Columns of the source that have another name in the target: source name → target name. A column to
    which the route gives a name is among them even if the target spells it as the source does."""
    retained_columns: tuple[str, ...] = ()
    """Columns of the target that this unit wrote earlier and that still have its old values."""
    rows_missing: bool = False
    """Whether the target table was missing and another unit created it again, without the rows of this
    one."""
    columns_stable_since: int | None = None
    """The offset of the definition since which each column name means the same column as now; None:
    unknown, because an older version stored it."""
    emptied_at: int | None = None
    """The offset of the event for which the unit's rows were deleted, as `on_drop` requires. The unit
    stays before this event and reads it again at each start."""
    unmapped_columns: tuple[str, ...] = ()
    """Columns, by their names in the target, that the target lacks and that are not written (`ignore`).
    If the target gets such a column later, its rows lack the values of the time before."""
    route_names: Mapping[str, str] = field(default_factory=dict)
    """The names that the route's `rename` gave when `names` was made: source name → target name."""
    snapshot: tuple[int, int] | None = None
    """Offsets of the first and the last row of the Debezium snapshot with which the unit continues.
    Before the last row the unit deletes the rows that the source has deleted."""
    removed: RemovedRows | None = None
    """The unit's debt: rows that the source has removed by statements, and that the target may still have,
    until a key sweep or a copy has ended."""
    has_kept_rows: bool = False
    """Whether `rowlock_kept` may have rows of the unit (`partitions: keep`)."""
    sweep_since: int | None = None
    """The offset of the key sweep's event after which its ranges are not yet compared with the target; None:
    no key sweep is under way, or its ranges are compared at their markers."""
    target_place: tuple[str, str] | None = None
    """(schema, name) of the target table that has the unit's rows; None: unknown, because an older version
    stored the definition, or the target is a topic."""

    def build_successor(
        self,
        table: Table,
        names: Mapping[str, str] | None = None,
        left: tuple[str, ...] = (),
        unwritten: tuple[str, ...] = (),
    ) -> StoredDefinition:
        """Return the definition that is stored for `table`, written as the arguments describe.

        `rows_missing` and `emptied_at` are reset; `columns_stable_since`, `snapshot`, `removed`,
        `has_kept_rows` and `target_place` stay.
        """
        return replace(
            self,
            table=table,
            names=names or {},
            retained_columns=left,
            unmapped_columns=unwritten,
            rows_missing=False,
            emptied_at=None,
        )

    def add_debt(self, removed: RemovedRows, *, kept: bool) -> StoredDefinition:
        """Return the definition with the debt of one more statement.

        `kept`: its sweep records the removed rows as kept.
        """
        return replace(
            self, removed=removed.add_statement(self.removed), has_kept_rows=self.has_kept_rows or kept
        )

    def is_debt_paid(self, begins: int) -> bool:
        """Return whether there is a debt that is paid by the end of a copy that began at the offset
        `begins`.
        """
        return self.removed is not None and self.removed.offset < begins

    def get_target_name(self, column: str) -> str:
        return self.names.get(column, column)

    def encode(self) -> str:
        """Return the text of `UnitState.definition`."""
        text = encode_table(self.table).decode()
        more = _ExtraFields(written_as=dict(self.names), **{name: getattr(self, name) for name in _SAME})
        beside = msgspec.json.encode(more).decode()
        return text if beside == "{}" else f"{text[:-1]},{beside[1:]}"


def read_debt(text: str) -> RemovedRows | None:
    """Return the debt in `UnitState.definition`; None: there is none. The table is not decoded."""
    return msgspec.json.decode(text, type=_ExtraFields).removed


def is_sweeping(text: str) -> bool:
    """Return whether a key sweep is under way by `UnitState.definition`. The table is not decoded."""
    return msgspec.json.decode(text, type=_ExtraFields).sweep_since is not None


def decode_stored(text: str) -> StoredDefinition:
    """Parse `UnitState.definition`. Raises EnvelopeError."""
    beside = msgspec.json.decode(text, type=_ExtraFields)
    return StoredDefinition(
        decode_table(text), beside.written_as, **{name: getattr(beside, name) for name in _SAME}
    )


def compute_stable_since(
    before: StoredDefinition, columns: ColumnChanges, offset: int, *, rewrite: bool = False
) -> int | None:
    """Return `columns_stable_since` after a definition at `offset`, which followed `before` by
    `columns`.

    `rewrite`: every row follows it again, with unknown changes of the columns. A dropped column counts,
    because its name may be used again, and so does a modified column of the key: quarantined events of a row
    then have another text of its key than later ones, and would be taken for another row's.
    """
    if rewrite or columns.renamed or columns.dropped or {*columns.modified} & {*before.table.key.columns}:
        return offset
    return before.columns_stable_since
