"""The frame of a row event: header, column bitmaps, and where the row images begin.

Format: `Rows_event` of MySQL (libs/mysql/binlog/event/rows_event.h). MariaDB's compressed variants pack
everything after the bitmaps (sql/log_event.cc, row_log_event_uncompress).
"""

from __future__ import annotations

from producer.binlog_format import types as t
from producer.binlog_format.compressed import unpack_compressed
from producer.binlog_format.errors import IncompleteRowImage, UndecodableRow


def is_row_event(event_type: int) -> bool:
    """Return whether `event_type` is a WRITE, UPDATE or DELETE_ROWS event of any version, compressed or
    not.
    """
    return event_type in t.ROW_EVENTS


def read_table_id(body: bytes) -> int:
    """Return the table id of a row event, which is that of its TABLE_MAP."""
    return int.from_bytes(body[:6], "little")


def unpack_rows_event(event_type: int, body: bytes) -> tuple[int, bytes]:
    """Return type and body of a row event, unpacked if it is one of MariaDB's compressed ones
    (log_bin_compress).
    """
    plain = t.COMPRESSED.get(event_type)
    if plain is None:
        return event_type, body
    start = _find_bitmaps(plain, body)
    columns, start = _read_lenenc(body, start)
    start += (columns + 7) // 8 * (2 if plain in t.UPDATES else 1)
    return plain, body[:start] + unpack_compressed(body[start:], "a compressed row event")


def find_rows_start(event_type: int, body: bytes, columns: int) -> int:
    """Return the offset of the first row image.

    Raises UndecodableRow when the number of columns is not `columns`, and IncompleteRowImage.
    """
    if event_type == t.PARTIAL_UPDATE_ROWS_EVENT:
        raise IncompleteRowImage("partial JSON update in the log", "SET GLOBAL binlog_row_value_options=''")
    found, start = _read_lenenc(body, _find_bitmaps(event_type, body))
    if found != columns:
        raise UndecodableRow(f"row event has {found} columns where its TABLE_MAP has {columns}")
    size = (columns + 7) // 8
    full = (1 << columns) - 1
    for _ in range(2 if event_type in t.UPDATES else 1):
        if int.from_bytes(body[start : start + size], "little") & full != full:
            raise IncompleteRowImage("row image is not full", "SET GLOBAL binlog_row_image=FULL")
        start += size
    return start


def _find_bitmaps(event_type: int, body: bytes) -> int:
    return 8 + (int.from_bytes(body[8:10], "little") if event_type in t.V2 else 0)


def _read_lenenc(body: bytes, at: int) -> tuple[int, int]:
    first = body[at]
    return (first, at + 1) if first < 251 else (int.from_bytes(body[at + 1 : at + 3], "little"), at + 3)
