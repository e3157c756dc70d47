"""Oracle's test stands: the lag of a poll on (a), and the rate of apply into H2 (c) as a ratio to plain
batched inserts: python -m bench.oracle.

Neither shows how fast an Oracle is: both sides of the ratio go through the same substitute for the driver, a
row at a time.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from typing import Any
from unittest import mock

from confluent_kafka import Consumer, TopicPartition

from bench.attempts import measure_apply
from consumer.tables.router import TableRoute
from deploy.embedded.services import Kafka, PostgreSQL
from producer.capture import run_capture
from schemas.config.kinds.targets import TARGET_KINDS
from schemas.config.model import Config, TargetConfig
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.records import format_former_table_topic
from tests.kits.apply import FakeSource
from tests.kits.capture import size, watermarks
from tests.kits.oracle_site import NUMBER, WIDE
from tests.kits.waiting import until
from tests.servers.h2_server import PASSWORD, USER, OracleOnH2
from tests.stands.oracle_on_h2 import KIND, make_database, open_on_h2
from tests.stands.oracle_source import OWNER, OracleStand

ROWS, EVENTS, RUNS, LANES, BATCH = 100, 20_000, 3, 4, 2000
PREFIX = "lag"


def lags(postgres: PostgreSQL, kafka: Kafka) -> list[float]:
    """Return how long each of single rows takes from its commit to a reader of the topic, in ms."""
    postgres.create_database(PREFIX)
    stand = OracleStand(lambda **options: postgres.connect(PREFIX, **options))
    stand.create("t", {"id": NUMBER, "version": WIDE})
    source = {
        "type": "oracle", "host": "h", "port": 1, "database": "d", "user": "u", "password": "p",
        "tables": [f"{OWNER}.*"],
    }  # fmt: skip
    config = Config.model_validate(
        {"kafka": {"bootstrap": kafka.bootstrap, "prefix": PREFIX}, "sources": {"s": source}}
    )
    stop = threading.Event()
    topic = format_former_table_topic(PREFIX, "s", OWNER, "t")
    with mock.patch("producer.sources.oracle.source.load_oracle_driver", return_value=stand.driver()):
        capture = threading.Thread(target=run_capture, args=(config, "s", stop))
        capture.start()
        try:
            until(
                lambda: (
                    (found := watermarks(kafka.bootstrap, PREFIX, "s")) and not found[-1].snapshot_pending
                ),
                "a start",
            )
            return _measured(stand, kafka, topic)
        finally:
            stop.set()
            capture.join()
            stand.close()


def _measured(stand: OracleStand, kafka: Kafka, topic: str) -> list[float]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "lag", "fetch.wait.max.ms": 5})
    consumer.assign([TopicPartition(topic, 0, size(kafka.bootstrap, topic))])
    rng, found = random.Random(1), []
    for number in range(ROWS):
        time.sleep(rng.uniform(0.1, 0.4))  # anywhere between two polls
        stand.do(f'INSERT INTO "{OWNER}"."t" VALUES (%s, 1)', (number,))
        committed = time.monotonic()
        while (message := consumer.poll(1.0)) is None or message.error() is not None:
            pass
        found.append((time.monotonic() - committed) * 1000)
    consumer.close()
    return found


def table(name: str) -> Table:
    return Table(
        db="bank", name=name,
        columns=(
            Column(name="id", type=ColumnType(kind=Kind.INT, bits=64), nullable=False),
            Column(name="holder", type=ColumnType(kind=Kind.VARCHAR, length=40, charset="utf8mb4",
             collation="utf8mb4_bin"), nullable=False),
            Column(name="version", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        ),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)), unique=(),
    )  # fmt: skip


def applied(config: TargetConfig, run: int) -> float:
    """Return the events a second of a topic of inserts."""
    source = FakeSource(table=table(f"t{run}"))
    made = [
        source.definition(),
        *(source.event("c", None, {"id": n, "holder": f"holder{n}", "version": 1}) for n in range(EVENTS)),
    ]
    return measure_apply(config, TableRoute("bank.*", "rowlock.{table}"), source, made, LANES)


def plain(config: TargetConfig, run: int) -> float:
    """Return the rows a second of one connection that inserts in batches, and commits each."""
    connection: Any = open_on_h2(config)
    cursor = connection.cursor()
    cursor.execute(
        f"CREATE TABLE PLAIN{run} (ID NUMBER(20) PRIMARY KEY, HOLDER VARCHAR2(40 CHAR) NOT NULL, "
        "VERSION NUMBER(10) NOT NULL)"
    )
    rows = [(n, f"holder{n}", 1) for n in range(EVENTS)]
    started = time.monotonic()
    for at in range(0, EVENTS, BATCH):
        cursor.executemany(f"INSERT INTO PLAIN{run} VALUES (:1, :2, :3)", rows[at : at + BATCH])
        connection.commit()
    seconds = time.monotonic() - started
    connection.close()
    return EVENTS / seconds


def main() -> None:
    print(f"load at the start: {os.getloadavg()[0]:.1f}")
    with PostgreSQL() as postgres, Kafka() as kafka:
        found = sorted(lags(postgres, kafka))
    print(
        f"commit on stand (a) → topic, idle: p50 {found[len(found) // 2]:.0f} ms, p99 {found[-2]:.0f} "
        f"ms, {len(found)} single rows"
    )
    TARGET_KINDS["oracle-on-h2"] = KIND
    ours, theirs = [], []
    with OracleOnH2() as server:
        make_database(server.port, "bench")
        fields = {
            "host": server.host,
            "port": server.port,
            "user": USER,
            "password": PASSWORD,
            "database": "bench",
        }
        config = TargetConfig.model_validate({"type": "oracle-on-h2", **fields})
        applied(config, RUNS)  # both are warm then
        plain(config, RUNS)
        for run in range(RUNS):
            ours.append(applied(config, run))
            theirs.append(plain(config, run))
    for what, rates in (("apply", ours), ("plain batched INSERT", theirs)):
        print(
            f"{what} into H2: {statistics.median(rates):,.0f} rows/s, median of "
            f"{', '.join(f'{each:,.0f}' for each in rates)}"
        )
    print(f"apply : plain {statistics.median(ours) / statistics.median(theirs):.2f}")
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
