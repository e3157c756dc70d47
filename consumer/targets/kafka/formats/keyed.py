"""The records of a row change in any format: their keys and their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from consumer.errors import RefusedError, TargetConfigError
from consumer.targets.kafka.formats.model import FormattedRecord, Place, RoutedTable
from schemas.problems import Problem
from schemas.table.model import Row
from schemas.values.converter import Convert, ConvertRow, compile_row

encoded = msgspec.json.Encoder().encode
VALUE_ERRORS = (TypeError, ValueError, OverflowError, KeyError)
"""The errors of a column's converter for a value that its form cannot represent."""


class KeyedRecords(ABC):
    """A format in which a record contains one row.

    Keys are compared by their bytes: values that a source considers equal may be two keys in Kafka.
    """

    def __init__(self, routed: RoutedTable) -> None:
        self.routed = routed

    def build_change_records(
        self, before: Row | None, after: Row | None, place: Place
    ) -> list[FormattedRecord]:
        """Return the records of a change (see RecordFormat.build_change_records).

        Raises RefusedError for a value that the format cannot represent.
        """
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
            if moves and self.routed.tombstones:  # a null value would delete other rows under the same key
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
        """Return whether two images under one key are one row; readers of the records distinguish rows
        by the primary key.
        """
        if self.routed.has_same_key(before, after):
            return True
        return encoded(self.encode_primary_key(before)) == encoded(self.encode_primary_key(after))

    def build_move_headers(self, other: bytes | None, *, to: bool) -> tuple[tuple[str, bytes], ...]:
        """Return the headers of one record of a move, which is a delete and an insert.

        `other`: the key that the row has after the move (`to`) or had before it. Empty for formats
        without such headers.
        """
        return ()

    @abstractmethod
    def encode_key(self, row: Row) -> bytes:
        """Return the key of a row's record."""

    @abstractmethod
    def encode_primary_key(self, row: Row) -> dict[str, object]:
        """Return column → written value for the columns of a row's primary key."""

    @abstractmethod
    def encode_insert(self, after: Row, place: Place) -> bytes:
        """Return the value of a record for a row that is new or was read by a snapshot."""

    @abstractmethod
    def encode_update(self, before: Row, after: Row, place: Place) -> bytes:
        """Return the value of a record for a row that keeps its key."""

    @abstractmethod
    def encode_delete(self, before: Row, place: Place) -> bytes:
        """Return the value of a record for a deleted row."""


class RowConverter:
    """Converts a row to the values that a format writes."""

    def __init__(self, names: Sequence[str], converters: Sequence[Convert | None], refusal: Problem) -> None:
        self._names, self._each, self._refusal = names, converters, refusal
        self._row: ConvertRow = compile_row(converters)

    def __call__(self, row: Sequence[object]) -> dict[str, object]:
        """Return column name → converted value, in the order of the columns.

        Raises RefusedError, which names the column but does not contain the value.
        """
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
                return RefusedError.from_problem(self._refusal.add_place(f"column {name}"))
        return RefusedError.from_problem(self._refusal)


def refuse_uncarried_column(routed: RoutedTable, column: str, seen: str, word: str) -> TargetConfigError:
    """Return the error by which a definition is refused.

    `seen`: the property of the column that the format `word` cannot represent.
    """
    return TargetConfigError(
        f"topic {routed.topic}, column {column}: format {word} cannot carry {seen}",
        "leave the column out of the route (`columns`), or take `format: rowlock`",
    )
