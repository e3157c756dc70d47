"""The records of a row change, whichever format writes them: what stands under which key, and in which order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from consumer.errors import RefusedError, TargetConfigError
from consumer.targets.kafka.formats.model import FormattedRecord, Place, RoutedTable
from schemas.table.model import Row
from schemas.values.converter import Convert, ConvertRow, compile_row

encoded = msgspec.json.Encoder().encode
VALUE_ERRORS = (TypeError, ValueError, OverflowError, KeyError)
"""Raised by a column's converter for a value that its form cannot hold."""


class KeyedRecords(ABC):
    """A format whose records say one row each. Keys are compared by their bytes: what a source holds equal may be two keys of Kafka."""

    def __init__(self, routed: RoutedTable) -> None:
        self.routed = routed

    def build_change_records(
        self, before: Row | None, after: Row | None, place: Place
    ) -> list[FormattedRecord]:
        """Return the records of a change (see Format.change). Raises RefusedError: a value that the format cannot carry."""
        old = None if before is None else self.encode_key(before)
        new = None if after is None else self.encode_key(after)
        moves = old != new
        if before is not None and after is not None and not moves and self._is_same_row(before, after):
            return [FormattedRecord(new, self.encode_update(before, after, place))]
        records: list[FormattedRecord] = []
        if before is not None:
            records.append(
                FormattedRecord(
                    old,
                    self.encode_delete(before, place),
                    self.build_move_headers(new, to=True) if moves else (),
                )
            )
            if moves and self.routed.tombstones:  # under one key a null value would take its other rows along
                records.append(FormattedRecord(old, None))
        if after is not None:
            records.append(
                FormattedRecord(
                    new,
                    self.encode_insert(after, place),
                    self.build_move_headers(old, to=False) if moves else (),
                )
            )
        return records

    def _is_same_row(self, before: Row, after: Row) -> bool:
        """Tell whether two images under one key are one row: to whoever reads the records, rows are told apart by the primary key."""
        if self.routed.has_same_key(before, after):
            return True
        return encoded(self.encode_primary_key(before)) == encoded(self.encode_primary_key(after))

    def build_move_headers(self, other: bytes | None, *, to: bool) -> tuple[tuple[str, bytes], ...]:
        """Return the headers of the half of a move: `other` is the key that the row has after it (`to`) or had before; None: no move."""
        return ()

    @abstractmethod
    def encode_key(self, row: Row) -> bytes:
        """Return the record's key of a row."""

    @abstractmethod
    def encode_primary_key(self, row: Row) -> dict[str, object]:
        """Return the columns of a row's primary key as they are written."""

    @abstractmethod
    def encode_insert(self, after: Row, place: Place) -> bytes:
        """Return the value of a row that is new, or was read by a snapshot."""

    @abstractmethod
    def encode_update(self, before: Row, after: Row, place: Place) -> bytes:
        """Return the value of a row that stays under its key."""

    @abstractmethod
    def encode_delete(self, before: Row, place: Place) -> bytes:
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
        except VALUE_ERRORS as error:
            raise self._build_refusal(row) from error

    def _build_refusal(self, row: Sequence[object]) -> RefusedError:
        for name, convert, value in zip(self._names, self._each, row, strict=True):
            try:
                if value is not None and convert is not None:
                    convert(value)
            except VALUE_ERRORS:
                return RefusedError(f"column {name}: {self._remedy}")
        return RefusedError(self._remedy)


def refuse_uncarried_column(routed: RoutedTable, column: str, seen: str, word: str) -> TargetConfigError:
    """Return the refusal of a definition. `seen`: what of the column the format `word` cannot carry."""
    return TargetConfigError(
        f"topic {routed.topic}, column {column}: format {word} cannot carry {seen}: leave the column out of the route (`columns`), or "
        "take `format: rowlock`"
    )
