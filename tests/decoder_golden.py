"""Row events that real servers wrote, kept with the rows that SELECT returned: decoders are tested with them
without a server.

`python -m tests.decoder_golden` starts MySQL and MariaDB and writes `PAGE` anew. A `Golden` is one column
type of one server, between the key and a neighbour, so that a value that is read a byte too short or too long
is another row.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from producer.binlog_format.log_event import TABLE_MAP
from producer.decoders.row_codec import (
    SourceContext,
    TableMap,
    is_row_event,
    parse_table_map,
    unpack_rows_event,
)
from producer.sources.catalog import BINLOG_FLAVOURS
from schemas.table.model import Table

PAGE = Path(__file__).parent / "golden" / "decoders.jsonl"
NEIGHBOUR = 0x11223344
OLD = "as before MariaDB 10.1"
_TIMES = {
    "TIME": ("-838:59:59", "838:59:59", "00:00:00", "-00:00:00.999999", "-01:02:03.000001", "23:59:59.123456",
     "100:00:00.1"),
    "DATETIME": ("0000-00-00", "1000-01-01", "9999-12-31 23:59:59", "2026-02-31 01:02:03.456789",
     "2024-12-31 00:00:00.000001"),
    "TIMESTAMP": ("0000-00-00", "1970-01-01 00:00:01", "2038-01-19 03:14:07", "2026-03-29 02:30:00.987654"),
}  # fmt: skip
_TEXTS = {
    "utf8mb4": "aé漢😀", "utf8mb3": "aé漢", "latin1": "aéÿ€", "ascii": "az", "gbk": "a漢字", "utf16": "aé😀",
    "utf16le": "aé😀", "utf32": "aé😀", "ucs2": "aé漢", "cp1251": "aЖя", "koi8r": "aЖя", "sjis": "aあア漢",
    "ujis": "aあ漢", "big5": "a漢字", "euckr": "a한글", "latin2": "ažł", "greek": "aΩ", "tis620": "aกข",
}  # fmt: skip
_DOUBLES = (
    "0", "-0.0", "1", "-1.5", "0.1", "123456789", "1e15", "1e16", "123456789012345678", "1e-5", "1e-14",
    "1.5e-15", "1e-16", "2.5e300", "-1e-300", "1.7976931348623157e308", "5e-324", "0.30000000000000004",
)  # fmt: skip
_DOCUMENTS = (
    "'null'", "'true'", "'false'", "'0'", "'-1'", "'1.0'", "'{}'", "'[]'", "'\"\"'", "'[null, true, false]'",
    "'{\"a\": {}, \"b\": []}'",
    *(f"'{sign}{edge + one}'" for edge in (2**15, 2**16, 2**31, 2**32, 2**63) for one in (-1,
     0) for sign in ("", "-")),
    "'18446744073709551615'",
    "'[1, -32768, 32768, 65535, 65536, -2147483649, 4294967296, 18446744073709551615]'",
    *(f"'{number}'" for number in _DOUBLES), "'[1.5, -0.0]'",
    "'{\"ä\": \"é漢😀\", \"q\": \"a\\\\\"b\\\\\\\\c\\\\u0001\", \"\": [[[{\"deep\": null}]]]}'",
    *(f"JSON_QUOTE(REPEAT('x', {length}))" for length in (1, 127, 128, 129, 16383, 16384)),
    "JSON_OBJECT('long', REPEAT('y', 300), 'n', 7, 'f', 2.5e0, 's', JSON_ARRAY('é', 1, NULL))",
    ("JSON_OBJECT('d', CAST('2026-02-03' AS DATE), 't', CAST('-12:34:56.789' AS TIME(6)), 'dt', "
        "CAST('2026-02-03 04:05:06.7' AS DATETIME(6)))"),
    ("JSON_ARRAY(CAST(12.30 AS DECIMAL(9,2)), CAST(-0.005 AS DECIMAL(20,12)), "
        "CAST(1234567890123456789.5 AS DECIMAL(30,3)), 0.0)"),
    "JSON_ARRAY(CAST(REPEAT('z', 60) AS BINARY), CAST('' AS BINARY), CAST(REPEAT('w', 100) AS BINARY))",
)  # fmt: skip
#: More than 64 KiB: offsets, counts and inlined numbers take 4 bytes.
_LARGE = (
    ("JSON_OBJECT('a', REPEAT('x', 66000), 'b', 70000, 'c', JSON_ARRAY(1, true), 'd', -5, "
        "'e', 3000000000, 'f', 2.5e0)"),
    ("JSON_ARRAY(REPEAT('x', 66000), 70000, -70000, 3000000000, null, "
        "18446744073709551615, JSON_OBJECT('k', 1), 'end')"),
)  # fmt: skip


class Golden(msgspec.Struct, frozen=True):
    """`map`: the body of TABLE_MAP; `events`: type and body of each row event; `rows`: what SELECT returned
    after the INSERTs.

    The events insert each row, then (unless `once`) move each to key + 1000, then delete all.
    """

    server: str
    declared: str
    table: Table
    charsets: dict[int, str]
    map: bytes
    events: list[tuple[int, bytes]]
    rows: list[tuple[Any, ...]]
    once: bool = False

    @property
    def source(self) -> SourceContext:
        form = BINLOG_FLAVOURS[self.server].table_map
        return SourceContext(
            connector=self.server, form=form, name="s", epoch=0, gen=1, charsets=self.charsets
        )

    def table_map(self) -> TableMap:
        return parse_table_map(self.map)


def goldens() -> list[Golden]:
    """Return all that `PAGE` holds."""
    found = []
    for line in PAGE.read_text().splitlines():
        _, _, packed = line.split("\t")
        found.append(msgspec.json.decode(zlib.decompress(base64.b64decode(packed)), type=Golden))
    return found


def types(server: str) -> Iterator[tuple[str, list[str]]]:
    """Yield what columns are declared as, each with the values as SQL."""
    for bits, name in ((8, "TINYINT"), (16, "SMALLINT"), (24, "MEDIUMINT"), (32, "INT"), (64, "BIGINT")):
        half, odd = 2 ** (bits - 1), [2**53, 2**53 + 1] if bits == 64 else []
        yield name, [str(n) for n in (-half, -1, 0, 1, half - 1, *odd, *(-n for n in odd))]
        yield f"{name} UNSIGNED", [str(n) for n in (0, 1, half, 2 * half - 1, *odd)]
    for precision, scale in (
        (1, 0),
        (9, 0),
        (10, 0),
        (11, 1),
        (18, 9),
        (19, 9),
        (19, 10),
        (9, 9),
        (6, 6),
        (12, 2),
        (27, 18),
        (28, 19),
        (30, 30),
        (38, 10),
        (65, 0),
        (65, 30),
    ):
        whole, part = "9" * (precision - scale), "9" * scale
        most = f"{whole or 0}.{part}" if part else whole
        least = f"0.{'0' * (scale - 1)}1" if part else "1"
        middle = f"{whole[: len(whole) // 2] or 0}.{'1' * (scale // 2 or 1) if part else 0}"
        yield (
            f"DECIMAL({precision},{scale})",
            [most, f"-{most}", least, f"-{least}", "0", middle, f"-{middle}"],
        )
    yield "FLOAT", ["0", "-0.0", "1.5", "-3.4028e38", "1.17549e-38", "0.1", "16777217", "1e-45"]
    yield "DOUBLE", list(_DOUBLES)
    yield "FLOAT(7,3)", ["1.2345", "-9999.999"]
    for length in (1, 8, 9, 53, 54, 64):
        yield f"BIT({length})", ["0", "1", str(2**length - 1), str(2 ** (length - 1))]
    yield "YEAR", ["0", "1901", "2000", "2155"]
    yield "DATE", ["'0000-00-00'", "'1000-01-01'", "'9999-12-31'", "'2026-02-31'"]
    for kind, texts in _TIMES.items():
        for fsp in range(7):
            yield f"{kind}({fsp}) NULL", [f"'{text}'" for text in texts]
    for charset, characters in _TEXTS.items():
        text = "', '".join(["", characters, f" {characters}  ", characters * 2]).split("', '")
        yield f"VARCHAR(40) CHARACTER SET {charset}", [f"'{each}'" for each in text]
        yield f"CHAR(40) CHARACTER SET {charset}", [f"'{each}'" for each in text]
        yield f"TEXT CHARACTER SET {charset}", [f"'{each}'" for each in text]
    for kind in ("VARCHAR(300)", "CHAR(255)", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"):
        most = 255 if kind in ("CHAR(255)", "TINYTEXT") else 300
        yield kind, [f"REPEAT('q', {n})" for n in (0, 1, 63, 64, most)] + [r"'\"\\\n'"]
    for kind in (
        "BINARY(5)",
        "BINARY(30)",
        "VARBINARY(9)",
        "VARBINARY(300)",
        "TINYBLOB",
        "BLOB",
        "MEDIUMBLOB",
        "LONGBLOB",
    ):
        yield kind, ["''", "x'00'", "x'ff00fe'", "x'0102030405'"]
    for count in (1, 3, 255, 256):
        labels = ", ".join(f"'l{i}'" for i in range(count))
        yield f"ENUM({labels})", ["0", "1", str(count), "NULL"]
    for count in (1, 8, 9, 17, 33, 64):
        labels = ", ".join(f"'l{i}'" for i in range(count))
        yield f"SET({labels})", ["0", "1", str(2 ** (count - 1)), str(2**count - 1)]
    yield "GEOMETRY", ["ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('LINESTRING(0 0, 1.5 -2)', 4326)"]
    if server == "mysql":
        yield "JSON", list(_DOCUMENTS)
        yield "JSON ", list(_LARGE)
    else:
        yield "JSON", [each for each in _DOCUMENTS if each.startswith("'")]


def _one(server: Any, declared: str, values: list[str]) -> Golden:
    from tests.kits.decoder_support import events_in

    table = server.create([f"c {declared}", "n INT"])
    for number, value in enumerate([*values, "NULL"]):
        server.execute(f"INSERT INTO {table.name} VALUES ({number}, {value}, {NEIGHBOUR})")
    rows, once = server.select(table), declared.endswith(" ")
    if not once:
        server.execute(f"UPDATE {table.name} SET id = id + 1000 ORDER BY id")
        server.execute(f"DELETE FROM {table.name} ORDER BY id")
    body, events = b"", []
    for kind, each in events_in(server.log.path(), server.log._at):
        if kind == TABLE_MAP:
            body = each
        elif is_row_event(kind):
            events.append(unpack_rows_event(kind, each))
    server.execute(f"DROP TABLE {table.name}")
    named = {"utf8mb4", "binary", *declared.split()}
    used = {number: charset for number, charset in server.source.charsets.items() if charset in named}
    return Golden(server.kind, declared.strip(), table, used, body, events, rows, once)


def main() -> None:
    """Write `PAGE` anew."""
    from deploy.embedded.services import MariaDB, MySQL
    from tests.kits.decoder_support import LoggedDatabase

    lines = []
    for service in (MySQL(durable=False), MariaDB(durable=False)):
        with service:
            service.create_database("golden")
            server = LoggedDatabase(service, "golden")
            server.execute("SET sql_mode = 'ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION'")
            for declared, values in types(server.kind):
                lines.append(_line(_one(server, declared, values)))
            server.close()
            if server.kind == "mariadb":
                service.execute("SET GLOBAL mysql56_temporal_format = OFF")
                server = LoggedDatabase(service, "golden")
                server.execute("SET sql_mode = 'ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION'")
                for kind, texts in _TIMES.items():
                    golden = _one(server, f"{kind} NULL", [f"'{text}'" for text in texts])
                    lines.append(_line(msgspec.structs.replace(golden, declared=f"{kind} {OLD}")))
                server.close()
    PAGE.write_text("".join(lines))


def _line(golden: Golden) -> str:
    packed = base64.b64encode(zlib.compress(msgspec.json.encode(golden), 9)).decode()
    return f"{golden.server}\t{golden.declared[:60]}\t{packed}\n"


if __name__ == "__main__":
    main()
