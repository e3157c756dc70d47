"""The definition in force as a unit's row in the target has it: the source's table, and what became of its columns there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from schemas.table.model import Table
from schemas.wire.codec import decode_table, encode_table
from schemas.wire.event import ColumnChanges


class _ExtraFields(msgspec.Struct, omit_defaults=True):
    """Fields beside the table's own, which readers of tables ignore."""

    written_as: dict[str, str] = msgspec.field(name="written_as", default_factory=dict)
    retained_columns: tuple[str, ...] = msgspec.field(name="left", default=())
    rows_missing: bool = msgspec.field(name="lost", default=False)
    columns_stable_since: int | None = msgspec.field(name="since", default=None)
    emptied_at: int | None = msgspec.field(name="emptied", default=None)
    unmapped_columns: tuple[str, ...] = msgspec.field(name="unwritten", default=())
    snapshot: tuple[int, int] | None = msgspec.field(name="snapshot", default=None)


_SAME = tuple(name for name in _ExtraFields.__struct_fields__ if name != "written_as")
"""Fields that `StoredDefinition` has under the same name."""


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    """`names`: columns of the source that have another name in the target. `left`: columns of the target that this unit wrote once, and
    that have its old values still. `lost`: the target table was gone, and another unit has made it anew: the rows of this one are not in it.
    `since`: the offset of the definition from which on a name of a column is the same column as now; None: an older version wrote it, nobody knows.
    `emptied`: the offset of the event for which the unit's rows were deleted, as `on_drop` says: it stays in front of the unit, and is met again.
    `unwritten`: columns of the table, by their names in the target, that the target lacks and that are left out of what is written (`ignore`):
    should the target come to have one, its rows lack the values of until then.
    `snapshot`: offsets of the first and the last row of a snapshot of Debezium's with which the unit goes on: in front of the last one it deletes what
    the source has no more."""

    table: Table
    names: Mapping[str, str] = field(default_factory=dict)
    retained_columns: tuple[str, ...] = ()
    rows_missing: bool = False
    columns_stable_since: int | None = None
    emptied_at: int | None = None
    unmapped_columns: tuple[str, ...] = ()
    snapshot: tuple[int, int] | None = None

    def build_successor(
        self,
        table: Table,
        names: Mapping[str, str] | None = None,
        left: tuple[str, ...] = (),
        unwritten: tuple[str, ...] = (),
    ) -> StoredDefinition:
        """Return what is stored of another definition, `table`, whose columns are written as the arguments say. That rows were lost or taken away is over;
        what is said of the unit besides (`since`, `snapshot`) stays."""
        return replace(
            self,
            table=table,
            names=names or {},
            retained_columns=left,
            unmapped_columns=unwritten,
            rows_missing=False,
            emptied_at=None,
        )

    def get_target_name(self, column: str) -> str:
        return self.names.get(column, column)

    def encode(self) -> str:
        """Return the text that `UnitState.definition` has."""
        text = encode_table(self.table).decode()
        more = _ExtraFields(written_as=dict(self.names), **{name: getattr(self, name) for name in _SAME})
        beside = msgspec.json.encode(more).decode()
        return text if beside == "{}" else f"{text[:-1]},{beside[1:]}"


def decode_stored(text: str) -> StoredDefinition:
    """Parse `UnitState.definition`. Raises EnvelopeError."""
    beside = msgspec.json.decode(text, type=_ExtraFields)
    return StoredDefinition(
        decode_table(text), beside.written_as, **{name: getattr(beside, name) for name in _SAME}
    )


def compute_stable_since(
    before: StoredDefinition, columns: ColumnChanges, offset: int, *, rewrite: bool = False
) -> int | None:
    """Return `StoredDefinition.since` behind a definition at `offset`, which followed `before` by `columns`.

    `rewrite`: every row comes anew behind it, and nobody knows what it did to the columns. A dropped one counts, for its name may come again.
    """
    if rewrite or columns.renamed or columns.dropped:
        return offset
    return before.columns_stable_since
