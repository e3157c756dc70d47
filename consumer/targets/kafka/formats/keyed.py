"""The records of a row change, whichever format writes them: what stands under which key, and in which order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from consumer.errors import RefusedError, TargetConfigError
from consumer.targets.kafka.formats.model import Place, Record, RoutedTable
from schemas.table.model import Row
from schemas.values.converter import Convert, ConvertRow, compile_row

encoded = msgspec.json.Encoder().encode
CONVERSION = (TypeError, ValueError, OverflowError, KeyError)
"""Raised by a column's converter for a value that its form cannot hold."""


class KeyedRecords(ABC):
    """A format whose records say one row each. Keys are compared by their bytes: what a source holds equal may be two keys of Kafka."""

    def __init__(self, routed: RoutedTable) -> None:
        self.routed = routed

    def change(self, before: Row | None, after: Row | None, place: Place) -> list[Record]:
        """Return the records of a change (see Format.change). Raises RefusedError: a value that the format cannot carry."""
        old = None if before is None else self.key(before)
        new = None if after is None else self.key(after)
        moves = old != new
        if before is not None and after is not None and not moves and self._same_row(before, after):
            return [Record(new, self.updated(before, after, place))]
        records: list[Record] = []
        if before is not None:
            records.append(
                Record(old, self.deleted(before, place), self.moved(new, to=True) if moves else ())
            )
            if moves and self.routed.tombstones:  # under one key a null value would take its other rows along
                records.append(Record(old, None))
        if after is not None:
            records.append(
                Record(new, self.created(after, place), self.moved(old, to=False) if moves else ())
            )
        return records

    def _same_row(self, before: Row, after: Row) -> bool:
        """Tell whether two images under one key are one row: to whoever reads the records, rows are told apart by the primary key."""
        if self.routed.same_row(before, after):
            return True
        return encoded(self.primary(before)) == encoded(self.primary(after))

    def moved(self, other: bytes | None, *, to: bool) -> tuple[tuple[str, bytes], ...]:
        """Return the headers of the half of a move: `other` is the key that the row has after it (`to`) or had before; None: no move."""
        return ()

    @abstractmethod
    def key(self, row: Row) -> bytes:
        """Return the record's key of a row."""

    @abstractmethod
    def primary(self, row: Row) -> dict[str, object]:
        """Return the columns of a row's primary key as they are written."""

    @abstractmethod
    def created(self, after: Row, place: Place) -> bytes:
        """Return the value of a row that is new, or was read by a snapshot."""

    @abstractmethod
    def updated(self, before: Row, after: Row, place: Place) -> bytes:
        """Return the value of a row that stays under its key."""

    @abstractmethod
    def deleted(self, before: Row, place: Place) -> bytes:
        """Return the value of a row that is gone."""


class RowConverter:
    """Converts a row to what a format writes. `at`: ordinals in the row of the columns that are converted, all without it."""

    def __init__(self, names: Sequence[str], converters: Sequence[Convert | None], remedy: str) -> None:
        self._names, self._each, self._remedy = names, converters, remedy
        self._row: ConvertRow = compile_row(converters)

    def __call__(self, row: Sequence[object]) -> dict[str, object]:
        """Return column name → converted value, in the order of the columns. Raises RefusedError naming the column, without the value."""
        try:
            return dict(zip(self._names, self._row(row), strict=True))
        except CONVERSION as error:
            raise self._refusal(row) from error

    def _refusal(self, row: Sequence[object]) -> RefusedError:
        for name, convert, value in zip(self._names, self._each, row, strict=True):
            try:
                if value is not None and convert is not None:
                    convert(value)
            except CONVERSION:
                return RefusedError(f"column {name}: {self._remedy}")
        return RefusedError(self._remedy)


def uncarried(routed: RoutedTable, column: str, seen: str, word: str) -> TargetConfigError:
    """Return the refusal of a definition. `seen`: what of the column the format `word` cannot carry."""
    return TargetConfigError(
        f"topic {routed.topic}, column {column}: format {word} cannot carry {seen}: leave the column out of the route (`columns`), or "
        "take `format: rowlock`"
    )
