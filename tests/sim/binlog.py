"""The model's log as servers write it: events of one table, made by hand after the format's description."""

from __future__ import annotations

from itertools import groupby

from producer.binlog_format import log_event as log
from producer.binlog_format.log_event import LogEvent
from tests.log_kit import OTHER, Log
from tests.row_images import DELETE, UPDATE, WRITE, bitmap, lenenc, sized
from tests.sim.wire import TABLE

SourceRow = tuple[str, str | None, str | None, int]
"""(key, u1, u2, version)."""
Change = tuple[SourceRow | None, SourceRow | None]

FILE = "binlog.000001"
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
"""Of the GTIDs of tests.log_kit."""
_TABLE_ID = (9).to_bytes(6, "little")
_HEAD = _TABLE_ID + b"\1\0\2\0" + lenenc(4)
_TABLE_MAP = (
    _TABLE_ID + b"\1\0" + sized(TABLE.db.encode(), 1) + b"\0" + sized(TABLE.name.encode(), 1) + b"\0"
    + lenenc(4) + bytes([15, 15, 15, 8]) + lenenc(6) + (40).to_bytes(2, "little") * 3
    + bitmap([column.nullable for column in TABLE.columns])
)  # fmt: skip


class Binlog:
    """One file; `mysql`: with MySQL's events, else MariaDB's."""

    def __init__(self, *, mysql: bool) -> None:
        self.mysql = mysql
        self._log = Log(FILE)

    @property
    def events(self) -> list[LogEvent]:
        return self._log.events

    @property
    def end(self) -> int:
        return self._log.pos

    def transaction(self, changes: list[Change], *, undone: bool = False, beside: bool = False) -> str:
        """Write a transaction, `undone` by ROLLBACK at its end; returns its GTID. `beside`: it begins with rows of another table."""
        gtid = self._begin(standalone=False)
        if beside:
            self._log.rows(OTHER, [1, 2])
        for kind, group in groupby(changes, _kind):
            images = [_image(row) for change in group for row in change if row is not None]
            present = b"\x0f" * (2 if kind == UPDATE else 1)
            self._log.add(log.TABLE_MAP, _TABLE_MAP)
            self._log.add(kind, _HEAD + present + b"".join(images))
        if undone:
            self._log.query("ROLLBACK", TABLE.db)
        else:
            self._log.xid()
        return gtid

    def truncate(self) -> str:
        gtid = self._begin(standalone=True)
        self._log.query(f"TRUNCATE TABLE {TABLE.name}", TABLE.db)
        return gtid

    def _begin(self, *, standalone: bool) -> str:
        number = self._log.numbers
        if not self.mysql:
            self._log.mariadb_gtid(log.MARIADB_STANDALONE if standalone else 0)
            return f"0-1-{_next(number) - 1}"
        self._log.gtid()
        if not standalone:
            self._log.query("BEGIN", TABLE.db)
        return f"{UUID}:{_next(number) - 1}"


def _next(number: object) -> int:
    """What a `count` gives next, without taking it."""
    return int(repr(number)[6:-1])


def _kind(change: Change) -> int:
    before, after = change
    return WRITE if before is None else DELETE if after is None else UPDATE


def _image(row: SourceRow) -> bytes:
    texts = [
        b"" if text is None else sized(text.encode(), 1) for text in row[:3] if isinstance(text, str | None)
    ]
    return bitmap([value is None for value in row]) + b"".join(texts) + row[3].to_bytes(8, "little")
