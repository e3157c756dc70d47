"""Text of snapshot rows: bytes that are no text are raw and marked, and stop the table in its key
(producer.snapshot.text)."""

from __future__ import annotations

import base64

import pytest
from msgspec.structs import replace

from producer.errors import TableStoppedError
from producer.snapshot.text import build_select_expressions, make_snapshot_row_decoder
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from tests.kits.apply import TEXT

COLUMNS = tuple(
    Column(name=name, type=ColumnType(kind=Kind.VARCHAR, length=20, **TEXT), nullable=False)
    for name in ("id", "note")
)
TABLE = Table(
    db="d", name="t", columns=COLUMNS, key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
)
ODD = b"a\xff"


def test_bytes_that_are_no_text_are_raw_and_marked() -> None:
    assert make_snapshot_row_decoder(TABLE)((b"k", ODD)) == (
        "k",
        {"undecodable": base64.b64encode(ODD).decode()},
    )


@pytest.mark.parametrize("odd", [b"", b"\1\0\0\0"])
def test_bytes_that_are_no_geometry_are_raw_and_marked(odd: bytes) -> None:
    """Before, an empty one ended the capture of its source, and again after each restart."""
    decode = make_snapshot_row_decoder(
        replace(TABLE, columns=(COLUMNS[0], Column(name="g", type=ColumnType(kind=Kind.GEOMETRY))))
    )
    assert decode((b"k", odd)) == ("k", {"undecodable": base64.b64encode(odd).decode()})
    assert decode((b"k", b"\1\0\0\0wkb")) == ("k", {"wkb": base64.b64encode(b"wkb").decode(), "srid": 1})
    assert decode((b"k", None)) == ("k", None)


def test_in_the_key_they_stop_the_table() -> None:
    with pytest.raises(TableStoppedError, match=r"key column id of a row of d\.t has bytes") as stopped:
        make_snapshot_row_decoder(TABLE)((ODD, b"x"))
    assert stopped.value.cause == "value"


def test_texts_are_read_as_the_bytes_that_the_source_stores() -> None:
    """The server would make question marks of what the connection's character set lacks; what is no text is
    read as it is."""
    number = Column(name="n", type=ColumnType(kind=Kind.INT, bits=32))
    table = replace(TABLE, columns=(*COLUMNS, number))
    assert build_select_expressions(table) == ["CAST(`id` AS BINARY)", "CAST(`note` AS BINARY)", "`n`"]
