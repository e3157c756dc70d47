"""Describes what a format of records is: a row change, TRUNCATE or definition of a routed table becomes records of Kafka, and back.

Data and one interface. A format is made for one routed table, is pure, and knows nothing of producers, partitions or progress.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from schemas.table.equality import are_same_values
from schemas.table.model import Row, Table
from schemas.wire.position import Position


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a routed table's events, in the source's names. `connector`: its kind (`mysql`, `mariadb`, `oracle`)."""

    source: str
    connector: str
    db: str
    table: str


@dataclass(frozen=True, slots=True)
class RoutedTable:
    """A table of events in target terms.

    `table`: the columns that are written (renamed table, added columns last; its db and name make the topic). `key_at`: ordinals of the
    routing key's columns; `primary_at`: of the primary key's. `topic`: the topic's name. `tombstones`: a null value follows each delete.
    `added`: the values of added columns, which are of the primary key.
    """

    table: Table
    key_at: tuple[int, ...]
    primary_at: tuple[int, ...]
    topic: str
    origin: Origin
    tombstones: bool = True
    added: tuple[tuple[str, str], ...] = ()

    def has_same_key(self, before: Row, after: Row) -> bool:
        """Return whether two images have the very same primary key."""
        return are_same_values([before[at] for at in self.primary_at], [after[at] for at in self.primary_at])


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The place of a change at the source: position, gen, commit time (ms), and whether a snapshot read it."""

    position: Position
    gen: int
    ts_ms: int
    snapshot: bool = False


Place = RecordPlace


@dataclass(frozen=True, slots=True)
class FormattedRecord:
    """A record to write. `key` None: a record of no row (TRUNCATE, definition): it goes to every partition."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordState:
    """The part of the topic's compacted state that a record leaves.

    `values`: column → wire value, as read back from the record; None: the row under `key` is gone, `gone`: as it was, where the record says.
    `cleared`: all rows of `origin` are gone: its (source, db, table), as far as the format says; None: all rows there are. Of a record of
    another origin than that of the table values are not read: they are {}.
    """

    key: bytes | None
    values: dict[str, object] | None = None
    cleared: bool = False
    origin: tuple[str, str, str] | None = None
    gone: dict[str, object] | None = None


State = RecordState


class RecordFormat(Protocol):
    """One format for one routed table, made by `FORMATS[word](routed)` of consumer.targets.kafka.formats.

    Making it raises consumer.errors.TargetConfigError, which names the column and the type that the format cannot carry, with the remedy.
    """

    def build_change_records(
        self, before: Row | None, after: Row | None, place: Place
    ) -> list[FormattedRecord]:
        """Return the records of a change. Rows have the columns of `RoutedTable.table`.

        `before` None: a create (or read: `place.snapshot`); `after` None: a delete (and its tombstone); both of one primary key and under one
        routing key (equal bytes): an update; under two routing keys: a delete (and tombstone) under the old one, a create under the new one;
        of two primary keys under one routing key: a delete and a create, without a tombstone, which would delete what else has that key.
        """

    def build_clear_records(self, where: dict[str, str] | None, place: Place) -> list[FormattedRecord]:
        """Return the records of a TRUNCATE of this origin's rows; none: the format has no word for it, and each row is deleted."""

    def build_definition_records(self, definition: Table, place: Place) -> list[FormattedRecord]:
        """Return the records of a definition event (in target terms); none: the format has none."""

    def decode_state(self, key: bytes | None, value: bytes | None) -> State | None:
        """Return what a record does to the compacted state of its topic; None: nothing (a definition)."""
