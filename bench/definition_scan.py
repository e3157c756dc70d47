"""The cost of proving definitions for a capture that lags by gigabytes of log: 200 ALTERs in it, and each
barrier is asked for its proof.

The goal is one more pass over the log at most, however many statements are in it: a pass for each statement
would make a lagging capture read its backlog once for each of them. A pass is measured by a dump of the same
stretch whose packets are thrown away.

python -m bench.definition_scan [--megabytes 5000] [--alters 200] [--server mariadb|mysql]
"""

from __future__ import annotations

import argparse
import contextlib
import random
import time
from typing import Any

from deploy.embedded.services import MariaDB, MySQL
from producer.binlog_format.log_event import parse_header, parse_rotate
from producer.definitions.proof import DefinitionReader
from producer.definitions.requests import DefinitionPlace, UnprovenDefinition
from producer.definitions.scan import derive_file_names, make_statement_scan
from producer.sources.binlog.binlog_dump import DumpConnection
from producer.sources.catalog import open_catalog
from producer.sources.source_session import connect_settings
from schemas.config.model import SourceConfig
from schemas.wire.position import parse_binlog_file_number

_ROWS = 10_000
_TABLES = 20
_SMALL = """
CREATE PROCEDURE small (IN n INT) BEGIN WHILE n > 0 DO UPDATE big SET v = n
WHERE id = n; SET n = n - 1; END WHILE; END
"""


def fill(
    server: Any, megabytes: int, alters: int
) -> tuple[tuple[str, int], list[tuple[str, int]], tuple[str, int]]:
    """Write the log: transactions of 10,000 rows with 300 of one row behind each, and ALTERs evenly between.

    Returns where it begins, what stands behind each ALTER, where it ends.
    """
    server.create_database("bench")
    with contextlib.closing(server.connect("bench")) as connection:
        cursor = connection.cursor()
        for number in range(_TABLES):
            cursor.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY, c0 INT)")
        cursor.execute("CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(200))")
        cursor.executemany("INSERT INTO big VALUES (%s, '')", [(n,) for n in range(_ROWS)])
        cursor.execute(_SMALL)
        if server.kind.lower() == "mariadb":
            cursor.execute("SET SESSION binlog_annotate_row_events = OFF")
        begin = _end(server, cursor)
        places, written, expected, round_ = [], 0, megabytes << 20, 0
        for number in range(alters):
            cursor.execute(f"ALTER TABLE t{number % _TABLES} ADD COLUMN a{number} INT")
            places.append(_end(server, cursor))
            while written < expected * (number + 1) // alters:
                round_ += 1
                cursor.execute("UPDATE big SET v = REPEAT(MD5(CONCAT(id, %s)), 6)", (round_,))
                cursor.execute("CALL small(300)")
                written = _written(cursor, begin)
        return begin, places, _end(server, cursor)


def _end(server: Any, cursor: Any) -> tuple[str, int]:
    cursor.execute("SHOW MASTER STATUS" if server.kind.lower() == "mariadb" else "SHOW BINARY LOG STATUS")
    row = cursor.fetchone()
    return str(row[0]), int(row[1])


def _written(cursor: Any, begin: tuple[str, int]) -> int:
    cursor.execute("SHOW BINARY LOGS")
    return sum(int(row[1]) for row in cursor.fetchall() if str(row[0]) >= begin[0]) - begin[1]


def one_pass(source: SourceConfig, begin: tuple[str, int], end: tuple[str, int]) -> tuple[float, int]:
    """Return seconds and bytes of a dump of the stretch that looks at nothing but where it stands."""
    began, size = time.monotonic(), 0
    until = (parse_binlog_file_number(end[0]), end[1])
    dump = DumpConnection(
        connect_settings(source), server_id=random.randrange(1 << 30, 1 << 31), file=begin[0], pos=begin[1],
        heartbeat=1
    )  # fmt: skip
    with contextlib.closing(dump):
        file = parse_binlog_file_number(begin[0])
        while True:
            for packet in dump.read_packets(1.0):
                size += len(packet)
                if packet[5] == 4:
                    file = parse_binlog_file_number(parse_rotate(packet[1:])[0])
            if packet is not None and (file, parse_header(packet)[4]) >= until:
                return time.monotonic() - began, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=5000)
    parser.add_argument("--alters", type=int, default=200)
    parser.add_argument("--server", choices=["mariadb", "mysql"], default="mariadb")
    given = parser.parse_args()
    kind = MariaDB if given.server == "mariadb" else MySQL
    with kind(durable=False) as server:
        began = time.monotonic()
        begin, places, end = fill(server, given.megabytes, given.alters)
        print(
            f"log of {given.megabytes} MB with {given.alters} ALTERs written in "
            f"{time.monotonic() - began:.0f} s"
        )
        source = SourceConfig.model_validate(
            {
                "type": given.server,
                "host": server.host,
                "port": server.port,
                "user": "root",
                "password": "",
                "tables": ["bench.*"],
            }
        )
        seconds, size = one_pass(source, begin, end)
        print(f"one pass: {size / 1e6:,.0f} MB in {seconds:.1f} s ({size / 1e6 / seconds:,.0f} MB/s)")
        catalog = open_catalog(source)
        scan = make_statement_scan(source)
        definitions = DefinitionReader(source, lambda: catalog, scan)
        began = time.monotonic()
        proofs = [
            definitions.prove_definition(DefinitionPlace(file, pos), ("bench", f"t{number % _TABLES}"))
            for number, (file, pos) in enumerate(places)
        ]
        seconds = time.monotonic() - began
        unproven = sum(isinstance(proof, UnprovenDefinition) for proof in proofs)
        print(
            f"{len(proofs)} proofs ({unproven} refuted): {scan.read_bytes / 1e6:,.0f} MB read in "
            f"{seconds:.1f} s: {scan.read_bytes / size:.2f} passes; the first reads up to the log's end "
            f"({derive_file_names(end[0])(parse_binlog_file_number(end[0]))})"
        )
        catalog.close()
        assert scan.read_bytes <= 1.05 * size, "more than one additional pass"


if __name__ == "__main__":
    main()
