"""Row events of a real server, read from its binlog files: what the decoder tests and the decoder benchmark
work on."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from producer.binlog_format.log_event import TABLE_MAP
from producer.binlog_format.types import UPDATES, WRITES
from producer.decoders.row_codec import (
    SourceContext,
    TableCodec,
    TableMap,
    TableMapCache,
    TopicTail,
    TransactionContext,
    is_row_event,
    read_table_id,
    unpack_rows_event,
)
from producer.sources.catalog import BINLOG_FLAVOURS
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from schemas.io.mysql_catalog import read_charset_ids, read_table
from schemas.io.mysql_connection import connect_mysql
from schemas.table.model import Row, Table
from schemas.values.mysql import make_select_row_converter, select_list, to_mysql

SOURCE = SourceContext(connector="mysql", form=MYSQL_FLAVOUR.table_map, name="s", epoch=0, gen=1)
_HEADER = struct.Struct("<IBIIIH")


def transaction(pos: int = 4711, made_ms: int = 1_790_000_000_012) -> TransactionContext:
    return TransactionContext(
        id="0-1-7", gtid="0-1-7", file="binlog.000003", file_number=3, pos=pos,
        ts_ms=1_790_000_000_000, server_id=7, made_ms=made_ms,
    )  # fmt: skip


def events_in(path: Path, start: int = 4, *, has_checksums: bool = True) -> Iterator[tuple[int, bytes]]:
    """Yield (event type, body without header and CRC32) of a binlog file."""
    for event in raw_events(path, start):
        yield event[4], event[19:-4] if has_checksums else event[19:]


def raw_events(path: Path, start: int) -> Iterator[bytes]:
    """Yield the events of a binlog file, whole."""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read()
    at = 0
    while at + 19 <= len(data):
        size = _HEADER.unpack_from(data, at)[3]
        yield data[at : at + size]
        at += size


class LogReader:
    """Reads what a server wrote to its binlog since the last call."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._maps = TableMapCache()
        [(checksum,)] = server.execute("SELECT @@global.binlog_checksum")
        self._has_checksums = checksum != "NONE"
        self.mark()

    def _status(self) -> tuple[str, int]:
        row = self._server.execute(self._server.log_status)[0]
        return row[0], int(row[1])

    def source(self) -> SourceContext:
        """What the codecs of this server's log work with."""
        with closing(self._server.connect()) as connection:
            charsets = read_charset_ids(connection)
        kind = self._server.kind.lower()
        return SourceContext(
            connector=kind, form=BINLOG_FLAVOURS[kind].table_map, name="s", epoch=0, gen=1, charsets=charsets
        )

    def mark(self) -> None:
        """Forget what was written so far."""
        self._file, self._at = self._status()

    def path(self) -> Path:
        path: Path = next(p for p in Path(self._server.home.data).rglob(self._file))
        return path

    def row_events(self, db: str, name: str) -> list[tuple[TableMap, int, bytes]]:
        """Return (map, type, body) of the row events of a table since the mark."""
        out, current = [], {}
        for kind, body in events_in(self.path(), self._at, has_checksums=self._has_checksums):
            if kind == TABLE_MAP:
                found = self._maps.get_table_map(body)
                current[found.table_id] = found
            elif is_row_event(kind):
                found = current[read_table_id(body)]
                if (found.db, found.name) == (db, name):
                    out.append((found, *unpack_rows_event(kind, body)))
        return out


def decode_rows(codec: TableCodec, kind: int, body: bytes) -> list[tuple[Row | None, Row | None]]:
    """Return (before, after) of every row as wire values; None if the operation has no such image."""
    images = codec._decode_images(codec._plain, kind, body)
    if kind in UPDATES:
        return list(zip(images[::2], images[1::2], strict=True))
    return [(None, image) if kind in WRITES else (image, None) for image in images]


def decoded(
    table: Table, events: list[tuple[TableMap, int, bytes]], source: SourceContext = SOURCE
) -> list[tuple[Row | None, Row | None]]:
    """Return (before, after) of all rows of `events`."""
    out: list[tuple[Row | None, Row | None]] = []
    codecs: dict[bytes, TableCodec] = {}
    for table_map, kind, body in events:
        codec = codecs.get(table_map.layout) or TableCodec(table, table_map, source, TopicTail())
        codecs[table_map.layout] = codec
        found = decode_rows(codec, kind, body)
        key = table.find_ordinals(table.key.columns)
        keys = [tuple(image[i] for i in key) for pair in found for image in pair if image]
        assert codec.decode_keys(kind, body) == keys
        out += found
    return out


def library_events(path: Path, start: int, dbms: str) -> Iterator[Any]:
    """Yield the row events of a binlog file as mysql-replication decodes them."""
    from pymysql.protocol import MysqlPacket
    from pymysqlreplication import row_event
    from pymysqlreplication.packet import BinLogPacketWrapper

    rows = (row_event.WriteRowsEvent, row_event.UpdateRowsEvent, row_event.DeleteRowsEvent)
    control = SimpleNamespace(charset="utf8mb4", _get_dbms=lambda: dbms)
    maps: dict[int, Any] = {}
    for raw in raw_events(path, start):
        packet = BinLogPacketWrapper(
            MysqlPacket(b"\0" + raw, "utf8mb4"), maps, control, (9, 0, 0), True,
            {row_event.TableMapEvent, *rows}, None, None, None, None, False, False, False, True, False,
        )  # fmt: skip
        if isinstance(packet.event, row_event.TableMapEvent):
            maps[packet.event.table_id] = packet.event.get_table()
        elif packet.event is not None:
            yield packet.event


class LoggedDatabase:
    """A database of a real server, a connection in the session that values need, and a reader of its log."""

    def __init__(self, service: Any, db: str) -> None:
        self.service, self.db, self.kind = service, db, service.kind.lower()
        self.connection = connect_mysql(service.host, service.port, service.user, service.password, db)
        self.log = LogReader(service)
        self.source = self.log.source()
        self._tables = 0

    def close(self) -> None:
        self.connection.close()

    def execute(self, sql: str, args: Any = None) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql, args)
            return list(cursor.fetchall())

    def create(self, columns: list[str], key: str = "id INT NOT NULL PRIMARY KEY") -> Table:
        self._tables += 1
        name = f"t{self._tables}"
        self.execute(f"CREATE TABLE {name} ({', '.join([key, *columns])}) CHARACTER SET utf8mb4")
        self.log.mark()
        return read_table(self.connection, self.db, name)

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        places = ", ".join(["%s"] * len(table.columns))
        convert = to_mysql(table)
        for row in rows:
            self.execute(f"INSERT INTO {table.name} VALUES ({places})", convert(row))

    def select(self, table: Table) -> list[Row]:
        rows = self.execute(f"SELECT {', '.join(select_list(table))} FROM {table.name} ORDER BY id")
        convert = make_select_row_converter(table)
        return [convert(row) for row in rows]

    def logged(self, table: Table) -> list[tuple[Row | None, Row | None]]:
        return decoded(table, self.log.row_events(self.db, table.name), self.source)
