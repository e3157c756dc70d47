"""One row of 400 MB in columns that `columns:` leaves out, on real servers, plain and compressed: capture
stays small."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL
from schemas.wire.records import format_former_table_topic
from tests.kits.capture import (
    Unit,
    events,
    replay,
    running,
    source,
    source_rows,
    topic_rows,
    transactions_are_whole,
    watermarks,
    write_config,
)
from tests.kits.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

MOST_BYTES = 300_000_000
"""The most resident memory that capture may have had."""
ROW = 400
"""Megabytes of the left-out columns of the large row."""
OPTIONS = {
    "mariadb": (
        MariaDB, ["--max-allowed-packet=1G", "--innodb-log-file-size=4500M"], "--log-bin-compress=ON"
    ),
    "mysql": (
        MySQL,
        ["--max-allowed-packet=1G", "--innodb-redo-log-capacity=8G"],
        "--binlog-transaction-compression=ON",
    ),
}  # fmt: skip
DB = "bank"
DOC = "CREATE TABLE bank.doc (id INT PRIMARY KEY, scan LONGBLOB, note VARCHAR(20), pdf LONGBLOB)"
#: Sixteen megabytes that neither zlib nor zstd packs, even if they are repeated.
RANDOM = (
    "INSERT INTO bank.block SELECT GROUP_CONCAT(RANDOM_BYTES(1024) SEPARATOR '') FROM bank.n a, bank.n b, "
    "bank.n c, bank.n d"
)


@pytest.fixture(params=[f"{name} {form}" for name in OPTIONS for form in ("plain", "compressed")])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server that takes packets of 1 GB, with a block of random bytes."""
    name, _, form = request.param.partition(" ")
    kind, options, compression = OPTIONS[name]
    with kind(durable=False, extra=[*options, *([compression] if form == "compressed" else [])]) as service:
        service.create_database(DB)
        service.execute(DOC)
        service.execute("CREATE TABLE bank.n (n INT PRIMARY KEY)")
        service.execute(f"INSERT INTO bank.n VALUES {', '.join(f'({n})' for n in range(12))}")
        service.execute("CREATE TABLE bank.block (b LONGBLOB)")
        with service.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION group_concat_max_len = 1073741824")
            cursor.execute(RANDOM)
        yield service


def read_peak_bytes(unit: Unit) -> int:
    """Return the most resident memory that the process has had."""
    assert unit.process is not None
    status = Path(f"/proc/{unit.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def topic(unique: str) -> str:
    return format_former_table_topic(unique, "s", DB, "doc")


def test_row_of_400_mb_in_left_out_columns_is_captured_in_little_memory(
    kafka: Kafka, server: Any, unique: str, tmp_path: Path
) -> None:
    columns = {"bank.doc": {"leave_out": ["scan", "pdf"]}}
    section = source(server, ["bank.doc"], columns=columns)
    config = write_config(tmp_path, kafka.bootstrap, unique, {"s": section})
    large = f"REPEAT((SELECT b FROM bank.block), {ROW // 40})"
    server.execute(f"INSERT INTO bank.doc SELECT 1, {large}, 'snapshot', {large}")
    with running(config, "s") as unit:

        def has(note: str) -> None:
            def is_captured() -> bool:
                found = events(kafka.bootstrap, topic(unique))
                return any((each.after or {}).get("note") == note for each in found)

            until(is_captured, f"{note}; {unit.output()[-3000:]}", 600)

        has("snapshot")
        server.execute(f"INSERT INTO bank.doc SELECT 2, {large}, 'log', {large}")
        has("log")
        server.execute("UPDATE bank.doc SET note = 'changed' WHERE id = 2")
        has("changed")
        server.execute("DELETE FROM bank.doc WHERE id = 1")
        server.execute("INSERT INTO bank.doc VALUES (3, NULL, 'small', 'p')")
        has("small")
        peak = read_peak_bytes(unit)
        assert unit.stop() == 0, unit.output()
    result = replay(events(kafka.bootstrap, topic(unique)))
    expected = source_rows(server, DB, "doc", "id, note")
    assert topic_rows(result, DB, "doc", ["id", "note"]) == expected == [(2, "changed"), (3, "small")]
    assert transactions_are_whole([result])
    assert "restart" not in unit.output().lower(), unit.output()
    print(f"peak {peak >> 20} MB")
    assert peak < MOST_BYTES


def test_row_with_a_large_published_value_stops_the_table_with_column_and_size(
    kafka: Kafka, server: Any, unique: str, tmp_path: Path
) -> None:
    section = source(server, ["bank.doc"], columns={"bank.doc": {"leave_out": ["pdf"]}})
    config = write_config(tmp_path, kafka.bootstrap, unique, {"s": section})
    with running(config, "s") as unit:
        until(lambda: events(kafka.bootstrap, topic(unique)), f"a topic; {unit.output()[-3000:]}", 100)
        large = f"REPEAT((SELECT b FROM bank.block), {ROW // 20})"
        server.execute(f"INSERT INTO bank.doc SELECT 1, {large}, 'large', NULL")

        def is_stopped() -> bool:
            return any(each.stop for each in events(kafka.bootstrap, topic(unique)))

        until(is_stopped, f"a stop; {unit.output()[-3000:]}", 600)
        peak = read_peak_bytes(unit)
        assert unit.stop() == 0, unit.output()
    (stop,) = [each.stop for each in events(kafka.bootstrap, topic(unique)) if each.stop]
    [(size,)] = server.execute("SELECT LENGTH(scan) FROM bank.doc")
    assert stop.cause == "size"
    assert f"column scan of bank.doc has {size} bytes" in stop.reason
    assert watermarks(kafka.bootstrap, unique, "s")
    assert peak < MOST_BYTES
