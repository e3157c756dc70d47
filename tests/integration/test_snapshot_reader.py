"""The chunk reader on real servers: every kind of key walks through the whole table, in chunks that neither
skip nor repeat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from producer.snapshot import reader as reader_module
from producer.snapshot.reader import BackgroundChunkReader, ChunkReader, make_connection_opener
from producer.sources.catalog import BINLOG_FLAVOURS
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ReadChunk
from schemas.io.mysql_catalog import read_table
from schemas.table.model import Key, Row, Table
from schemas.values.packed import decode_packed_rows
from tests.kits.decoder_support import LoggedDatabase
from tests.kits.waiting import until

KEYS = {
    "int": ("id INT, PRIMARY KEY (id)", "(-5), (0), (3), (7), (2000000000)"),
    "bigint": ("id BIGINT UNSIGNED, PRIMARY KEY (id)",
     "(0), (9007199254740993), (9007199254740994), (18446744073709551615)"),
    "decimal": ("id DECIMAL(30,10), PRIMARY KEY (id)",
     "(-1.5), (0.1), (12345678901234567890.0000000001), (12345678901234567890.0000000002)"),
    "text_ci": ("id VARCHAR(20) COLLATE utf8mb4_general_ci, PRIMARY KEY (id)",
     "('a'), ('B'), ('c'), ('Z'), ('%s'), ('é'), ('😀'), ('it''s')"),
    "latin1": ("id CHAR(9) CHARACTER SET latin1, PRIMARY KEY (id)", "('a'), ('é'), ('z'), (''), ('ÿ')"),
    "sjis": ("id VARCHAR(9) CHARACTER SET sjis, PRIMARY KEY (id)",
     "(x'615c'), (x'615d'), (x'6162'), (x'6183A0')"),
    "sjis_bin": ("id CHAR(9) CHARACTER SET sjis COLLATE sjis_bin, PRIMARY KEY (id)",
     "(x'615c'), (x'615d'), (x'6162'), (x'6183A0')"),
    "swe7": ("id VARCHAR(9) CHARACTER SET swe7, PRIMARY KEY (id)", "('Å'), ('Ä'), ('b'), ('é'), ('Ü')"),
    "armscii8": ("id VARCHAR(9) CHARACTER SET armscii8, PRIMARY KEY (id)", "('.'), ('Ա'), ('բ'), ('«')"),
    "binary": ("id BINARY(3), PRIMARY KEY (id)", "(x'000000'), (x'00ff00'), (x'ff'), (x'2725')"),
    "enum": ("id ENUM('z','a','m'), PRIMARY KEY (id)", "('a'), ('m'), ('z')"),
    "set": ("id SET('z','a','m'), PRIMARY KEY (id)", "('a'), ('m,z'), ('z'), ('')"),
    "year": ("id YEAR, PRIMARY KEY (id)", "(0), (1999), (2155)"),
    "bit": ("id BIT(60), PRIMARY KEY (id)", "(0), (5), (1152921504606846975)"),
    "date": ("id DATE, PRIMARY KEY (id)", "('0000-00-00'), ('2026-01-01'), ('9999-12-31')"),
    "timestamp": ("id TIMESTAMP(3) NOT NULL DEFAULT '2020-01-01', PRIMARY KEY (id)",
     "('0000-00-00'), ('2026-01-01 00:00:00.001'), ('2026-01-01 00:00:00.002')"),
    "time": ("id TIME, PRIMARY KEY (id)", "('-838:59:59'), ('-1:00:00'), ('0:00:00'), ('100:00:00')"),
    "double": ("id DOUBLE, PRIMARY KEY (id)", "(-1e300), (0.1), (0.30000000000000004), (1e22)"),
    "unique": ("id INT NOT NULL, UNIQUE (id)", "(1), (2), (3)"),
}  # fmt: skip


PACKED_KEYS = {
    "int": KEYS["int"],
    "bigint": KEYS["bigint"],
    "signed": ("id BIGINT, PRIMARY KEY (id)", "(-9223372036854775808), (-1), (0), (9223372036854775807)"),
    "small": ("a TINYINT, b SMALLINT UNSIGNED, c MEDIUMINT, PRIMARY KEY (a, b, c)",
     "(-128, 65535, -8388608), (-128, 65535, 8388607), (127, 0, 0)"),
    "zerofill": ("id INT(8) ZEROFILL, PRIMARY KEY (id)", "(0), (9), (10), (4294967295)"),
    "year": KEYS["year"],
    "date": ("id DATE, PRIMARY KEY (id)",
     "('0000-00-00'), ('0001-01-01'), ('0099-02-03'), ('2026-00-01'), ('2026-02-31'), ('9999-12-31')"),
    "datetime": ("id DATETIME(6), PRIMARY KEY (id)",
     "('0000-00-00'), ('0099-01-01 00:00:00.000001'), ('9999-12-31 23:59:59.999999')"),
    "timestamp": KEYS["timestamp"],
    "percent": ("`a%s` INT, `\"'` DATE, PRIMARY KEY (`\"'`, `a%s`)",
     "(2, '2026-01-01'), (10, '2026-01-01'), (1, '2026-01-02')"),
    "unique": KEYS["unique"],
}  # fmt: skip


class SnapshotDatabase(LoggedDatabase):
    """A database whose table `t` is read in chunks. `settings`: how the reader connects."""

    def __init__(self, service: Any, db: str) -> None:
        super().__init__(service, db)
        self.settings = {
            "host": service.host, "port": service.port, "user": service.user, "password": service.password,
        }  # fmt: skip

    def table(self, definition: str, values: str) -> Table:
        self.execute("SET sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'")
        self.execute(f"CREATE TABLE t ({definition})")
        if values:
            self.execute(f"INSERT INTO t VALUES {values}")
        return read_table(self.connection, self.db, "t")

    def reader(self) -> ChunkReader:
        visibility = BINLOG_FLAVOURS[self.kind].visibility(self.settings)
        return ChunkReader(make_connection_opener(self.settings), visibility, (0, 0))


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[SnapshotDatabase]:
    service = request.getfixturevalue(request.param)
    with closing(SnapshotDatabase(service, request.getfixturevalue(f"{request.param}_db"))) as made:
        yield made


def chunks_of(server: SnapshotDatabase, table: Table, limit: int) -> Iterator[list[Row]]:
    after: Key | None = None
    columns = table.find_ordinals(table.key.columns)
    with closing(server.reader()) as reader:
        for request in range(100):
            answer = reader.read_chunk(ReadChunk(request, table, after, limit, 0.0))
            assert isinstance(answer, ChunkRead), answer
            yield list(answer.rows)
            if len(answer.rows) < limit:
                return
            after = tuple(answer.rows[-1][i] for i in columns)


@pytest.mark.parametrize("key", KEYS)
def test_chunks_cover_every_row_once(server: SnapshotDatabase, key: str) -> None:
    table = server.table(*KEYS[key])
    [whole] = chunks_of(server, table, 1000)
    assert len(whole) == KEYS[key][1].count("(")
    for limit in (1, 2):
        assert [row for chunk in chunks_of(server, table, limit) for row in chunk] == whole


@pytest.mark.parametrize("key", PACKED_KEYS)
def test_packed_keys_are_those_that_are_read_row_by_row(
    server: SnapshotDatabase, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = server.table(*PACKED_KEYS[key])
    keys = replace(table, columns=tuple(map(table.get_column, table.key.columns)))
    decoded = spy_on_decoder(monkeypatch)
    packed = [list(chunks_of(server, keys, limit)) for limit in (1000, 2)]
    assert decoded
    assert None not in decoded
    monkeypatch.setattr(reader_module, "can_pack", lambda _: False)
    assert packed == [list(chunks_of(server, keys, limit)) for limit in (1000, 2)]


def test_keys_whose_text_the_server_cuts_are_read_row_by_row(
    server: SnapshotDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the text ends: also between two keys."""
    table = server.table(
        "a INT, b DATE, PRIMARY KEY (a, b)", ", ".join(f"({n}, '2026-01-01')" for n in range(3))
    )
    expected = [(n, "2026-01-01") for n in range(3)]
    whole = len(",".join(f'[{a},"{b}"]' for a, b in expected))
    decoded = spy_on_decoder(monkeypatch)
    found = []
    for most in range(4, whole + 1):
        monkeypatch.setattr(reader_module, "MYSQL_SESSION_SQL", f"SET SESSION group_concat_max_len = {most}")
        found.append([*chunks_of(server, table, 10)])
    assert found == [[expected]] * (whole - 3)
    assert [rows is None for rows in decoded] == [True] * (whole - 4) + [False]


def spy_on_decoder(monkeypatch: pytest.MonkeyPatch) -> list[list[Row] | None]:
    """Return what the reader's decoder of packed rows has returned so far; the list grows."""
    returned: list[list[Row] | None] = []

    def decode(table: Table, packed: Sequence[object]) -> list[Row] | None:
        returned.append(decode_packed_rows(table, packed))
        return returned[-1]

    monkeypatch.setattr(reader_module, "decode_packed_rows", decode)
    return returned


def test_a_key_of_several_columns(server: SnapshotDatabase) -> None:
    values = ", ".join(f"({a}, '{b}', {c})" for a in range(3) for b in "xyz" for c in range(2))
    table = server.table("a INT, b VARCHAR(5), c INT, PRIMARY KEY (c, a, b)", values)
    [whole] = chunks_of(server, table, 1000)
    assert len(whole) == 18
    for limit in (1, 4, 5):
        assert [row for chunk in chunks_of(server, table, limit) for row in chunk] == whole


def test_low_and_high_enclose_the_select(server: SnapshotDatabase) -> None:
    table = server.table("id INT PRIMARY KEY", "(1)")
    with closing(server.reader()) as reader:
        first = reader.read_chunk(ReadChunk(1, table, None, 10, 0.0))
        server.execute("INSERT INTO t VALUES (2)")
        second = reader.read_chunk(ReadChunk(2, table, None, 10, 0.0))
    assert isinstance(first, ChunkRead)
    assert isinstance(second, ChunkRead)
    assert (list(first.rows), list(second.rows)) == ([(1,)], [(1,), (2,)])
    assert second.high > first.high
    if server.kind == "mariadb":
        assert first.low.point == first.high
        assert second.low.point == second.high
    else:
        assert first.low.gtids is not None
        assert second.low.gtids is not None
        assert second.low.gtids.covers(first.low.gtids)
        assert not first.low.gtids.covers(second.low.gtids)


def test_a_table_that_changed_under_the_reader_is_tried_again(server: SnapshotDatabase) -> None:
    table = server.table("id INT PRIMARY KEY, gone INT", "")
    server.execute("ALTER TABLE t DROP COLUMN gone")
    background = BackgroundChunkReader(server.reader())
    background.submit(ReadChunk(7, table, None, 10, 0.0))
    answer = until(background.poll_answer, "the answer")
    assert isinstance(answer, ChunkFailed)
    assert answer.request == 7
    background.submit(ReadChunk(8, read_table(server.connection, server.db, "t"), None, 10, 0.0))
    assert isinstance(until(background.poll_answer, "the answer"), ChunkRead)
    background.close()


def test_a_missing_grant_is_no_reason_to_try_again(server: SnapshotDatabase) -> None:
    table = server.table("id INT PRIMARY KEY", "")
    user = f"u_{server.db}"
    server.execute(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY ''")
    server.settings |= {"user": user}
    background = BackgroundChunkReader(server.reader())
    background.submit(ReadChunk(1, table, None, 10, 0.0))
    with pytest.raises(Exception, match="denied"):
        until(background.poll_answer, "the answer")
    background.close()
    server.execute(f"DROP USER {user}@'127.0.0.1'")
