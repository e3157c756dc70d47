"""Row images of TDSQL's JSON subscription → rows of wire values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from producer.errors import CaptureError
from producer.sources.tdsql_json.literals import NULL, DoubtError, LiteralError, LiteralForm, MisfitError
from producer.sources.tdsql_json.values import make_literal_reader
from schemas.findings import format_copy_remedy
from schemas.table.model import Row, Table, Value


class RowWidthError(CaptureError):
    """A row image with more or fewer literals than the definition has columns."""


class RowReader:
    """Reads the row images of one definition of a table, which was proven for their place in the topic."""

    def __init__(self, table: Table, form: LiteralForm) -> None:
        self._table = table
        self._reads = [make_literal_reader(column.type, form) for column in table.columns]
        self._required = [i for i, column in enumerate(table.columns) if not column.nullable]

    def read_row(self, literals: Sequence[str | None]) -> Row:
        """Return the wire values of a row. Raises RowWidthError, and LiteralError for the first literal that
        cannot be read.
        """
        if len(literals) != len(self._reads):
            raise self._build_width_error(len(literals))
        try:
            row = tuple(
                [
                    None if literal == NULL else read(cast("str", literal))
                    for read, literal in zip(self._reads, literals, strict=True)
                ]
            )
        except (ValueError, TypeError):
            return tuple([self._read_value(i, literal) for i, literal in enumerate(literals)])
        for i in self._required:
            if row[i] is None:
                self._read_value(i, literals[i])
        return row

    def _read_value(self, i: int, literal: str | None) -> Value:
        """Return the value of column number `i`. Raises LiteralError."""
        column = self._table.columns[i]
        try:
            if literal is None:
                raise DoubtError("is NULL or a column that the log does not contain")
            if literal != NULL:
                return self._reads[i](literal)
            if not column.nullable:
                raise MisfitError("is in a column that is NOT NULL")
        except DoubtError as doubt:
            remedy = f"find out which it is, and {format_copy_remedy(self._table.db, self._table.name)}"
            raise LiteralError(column.name, literal, f"could mean two values: it {doubt}", remedy) from doubt
        except MisfitError as misfit:
            kind = column.type.kind.value
            raise LiteralError(
                column.name, literal, f"does not fit the type {kind}: it {misfit}",
                f"look whether the table had another definition, and "
                f"{format_copy_remedy(self._table.db, self._table.name)}",
            ) from misfit  # fmt: skip
        return None

    def _build_width_error(self, literals: int) -> RowWidthError:
        return RowWidthError(
            f"a row of {self._table.db}.{self._table.name} has {literals} values where its definition has "
            f"{len(self._reads)} columns",
            format_copy_remedy(self._table.db, self._table.name),
        )
