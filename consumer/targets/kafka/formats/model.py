"""The interface of record formats, which convert a row change, TRUNCATE or definition of a routed table
to Kafka records, and back.

Data and one interface. A format is made for one routed table, is pure, and does not depend on
producers, partitions or progress.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from schemas.table.equality import are_same_values
from schemas.table.model import Row, Table
from schemas.wire.position import Position


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a routed table's events, in the source's names.

    `connector`: its kind (`mysql`, `mariadb`, `oracle`).
    """

    source: str
    connector: str
    db: str
    table: str


@dataclass(frozen=True, slots=True)
class RoutedTable:
    """A table that is written as events, in target terms."""

    table: Table
    """The written columns (renamed table, added columns last); its db and name make the topic."""
    key_at: tuple[int, ...]
    """Ordinals of the routing key's columns."""
    primary_at: tuple[int, ...]
    """Ordinals of the primary key's columns."""
    topic: str
    """The topic's name."""
    origin: Origin
    tombstones: bool = True
    """Whether a null value follows each delete."""
    added: tuple[tuple[str, str], ...] = ()
    """The values of added columns, which belong to the primary key."""

    def has_same_key(self, before: Row, after: Row) -> bool:
        """Return whether two images have exactly the same primary key."""
        return are_same_values([before[at] for at in self.primary_at], [after[at] for at in self.primary_at])


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The place of a change at the source: position, gen, commit time (ms), and whether a snapshot read
    it.
    """

    position: Position
    gen: int
    ts_ms: int
    snapshot: bool = False


Place = RecordPlace


@dataclass(frozen=True, slots=True)
class FormattedRecord:
    """A record to write.

    `key` None: a record that concerns no single row (TRUNCATE, definition); it goes to every partition.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordState:
    """The effect of a record on the topic's compacted state.

    For a record of another origin than the table's, values are not decoded; they are {}.
    """

    key: bytes | None
    values: dict[str, object] | None = None
    """Column → wire value, decoded from the record; None: the row under `key` was deleted."""
    cleared: bool = False
    """Whether all rows of `origin` were deleted."""
    origin: tuple[str, str, str] | None = None
    """(source, db, table), as far as the format contains it; None: all rows of the topic."""
    deleted: dict[str, object] | None = None
    """The row before its delete, if the record contains it."""


State = RecordState


class RecordFormat(Protocol):
    """A format for one routed table, made by `FORMATS[word](routed)` of consumer.targets.kafka.formats.

    Making one raises consumer.errors.TargetConfigError, which names the column and the type that the
    format cannot represent, with the remedy.
    """

    def build_change_records(
        self, before: Row | None, after: Row | None, place: Place
    ) -> list[FormattedRecord]:
        """Return the records of a change. Rows have the columns of `RoutedTable.table`.

        - `before` None: a create (or read, if `place.snapshot`).
        - `after` None: a delete and its tombstone.
        - Both, with one primary key and one routing key (equal bytes): an update.
        - Two routing keys: a delete (and tombstone) under the old one, a create under the new one.
        - Two primary keys under one routing key: a delete and a create, without a tombstone, which
          would delete the other rows of that key.
        """

    def build_clear_records(self, where: dict[str, str] | None, place: Place) -> list[FormattedRecord]:
        """Return the records of a TRUNCATE of this origin's rows.

        None if the format cannot represent it; each row is then deleted.
        """

    def build_definition_records(self, definition: Table, place: Place) -> list[FormattedRecord]:
        """Return the records of a definition event (in target terms); empty if the format has none."""

    def decode_state(self, key: bytes | None, value: bytes | None) -> State | None:
        """Return the effect of a record on the compacted state of its topic; None: no effect (a
        definition).
        """
