"""`make bench`: every figure with its baseline, measured in one run and written to docs/benchmarks.md.

python -m bench [--events 300000]
    [--only capture,apply,start,latency,load,topics,kafka,copy,sweep,commands,coordination]
    [--copied-rows 10000000] [--swept-rows 1000000]
    [--no-write]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from bench import (
    cluster,
    commands,
    copy_table,
    core_scale,
    heartbeats,
    kafka_target,
    key_sweep,
    loaded_latency,
    messages,
    start,
    takeover,
)
from bench.backlogs import apply
from bench.kit import APPLY_KINDS, Figures, Tree, percentiles, tree, wait
from bench.stage import SOURCE_DB, TOPIC, Bench, benches, rowlock_run, stock_run

REPORT = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def capture(bench: Bench) -> None:
    """Capture alone, binlog → Kafka, against the plain loop over the same stretch of the same binlog."""
    config = bench.config("capture")
    with tree(
        "producer.main", "--config", str(config), "--source", "branch", "--detached", log=bench.log("capture")
    ):
        wait(lambda: bench.topics.end_connection(TOPIC) > 0, "the first definition and snapshot")
        time.sleep(3)  # the position record follows within a second
    (file, pos), *_ = [row[:2] for row in bench.source.execute("SHOW MASTER STATUS")]
    bench.load(bench.events)
    base = _baseline(bench, str(file), int(pos))
    figures = bench.figures
    figures.add_event("capture, plain mysql-replication loop (baseline)",
    f"{base['events'] / base['seconds']:,.0f} events/s",
                f"peak memory {base['peak_mib']:.0f} MiB")  # fmt: skip
    before = bench.topics.end_connection(TOPIC)
    with tree(
        "producer.main", "--config", str(config), "--source", "branch", "--detached", log=bench.log("capture")
    ) as ours:
        wait(lambda: bench.topics.end_connection(TOPIC) > before, "the first event", pause=0.002)
        first, started = bench.topics.end_connection(TOPIC), time.monotonic()
        wait(lambda: bench.topics.end_connection(TOPIC) >= before + bench.events, "all events")
        seconds, cpu = time.monotonic() - started, ours.cpu_seconds()
    rate = (before + bench.events - first) / seconds
    figures.add_event("capture, rowlock", f"{rate:,.0f} events/s", f"{cpu:.1f} s of processor time in all")
    figures.add_event(
        "capture, rowlock : baseline", f"{rate * base['seconds'] / base['events']:.1f} times", "goal: 8"
    )
    figures.memory("capture", ours.peaks)


def _baseline(bench: Bench, file: str, pos: int) -> dict[str, Any]:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bench.kafka.bootstrap})
    for future in admin.create_topics([NewTopic("baseline", 1, 1)]).values():
        with contextlib.suppress(Exception):
            future.result()
    source = bench.source
    done = subprocess.run(
        [sys.executable, "-m", "bench.baseline", source.host, str(source.port), source.user, "", file,
        str(pos),
         bench.kafka.bootstrap, "baseline", str(bench.events), "--mariadb"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def latency(bench: Bench) -> None:
    """Commit → visible on an idle system, with our worker daemon and with PySpark's own; and what idling
    costs."""
    ours = _latency(bench, "latency_ours", rowlock_run, idle=True)
    stock = _latency(bench, "latency_stock", stock_run, idle=False)
    bench.figures.add_event(
        "commit → visible, idle, rowlock",
        percentiles(ours),
        f"{len(ours)} single rows; goal p50 ≤ 15 ms, p99 ≤ 60 ms",
    )
    bench.figures.add_event("commit → visible, idle, stock PySpark worker (baseline)", percentiles(stock))
    ratio = sorted(stock)[len(stock) // 2] / sorted(ours)[len(ours) // 2]
    bench.figures.add_event("latency p50, stock : rowlock", f"{ratio:.1f} times")


Running = Callable[[Bench, str, Path], contextlib.AbstractContextManager[Tree]]


def _latency(bench: Bench, name: str, run: Running, *, idle: bool) -> list[float]:
    table = f"probe_{name}"
    bench.source.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", database=SOURCE_DB)
    config = bench.config(name, prefix=name, tables=table)
    with (
        run(bench, name, config) as processes,
        contextlib.closing(bench.targets["postgres"].connect(name)) as target,
        contextlib.closing(bench.source.connect(SOURCE_DB)) as source,
    ):
        for number in range(-30, 0):  # warms the JVM
            _probe(source, target, table, number)
        if idle:
            _idle(bench, processes)
        return [_probe(source, target, table, number) for number in range(100)]


def _probe(source: Any, target: Any, table: str, number: int) -> float:
    with source.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} VALUES (%s)", (number,))
    started = time.monotonic()
    wait(lambda: _visible(target, table, number), f"probe {number}", pause=0.001)
    seconds = time.monotonic() - started
    time.sleep(0.1 + (number % 7) * 0.017)  # not in step with the polling
    return seconds


def _visible(target: Any, table: str, number: int) -> bool:
    with contextlib.suppress(Exception), target.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM {table} WHERE id = %s", (number,))
        return bool(cursor.fetchall())
    return False


def _idle(bench: Bench, processes: Tree) -> None:
    """Share of a core of the apply processes, and of everything that `rowlock run` has started."""
    time.sleep(5)
    before, began = processes.cpu_by_kind(), time.monotonic()
    time.sleep(20)
    after, seconds = processes.cpu_by_kind(), time.monotonic() - began
    share = {kind: (after[kind] - before.get(kind, 0.0)) / seconds for kind in after}
    apply_share = sum(share.get(kind, 0.0) for kind in APPLY_KINDS)
    bench.figures.add_event(
        "apply processes when idle",
        f"{apply_share:.1%} of a core",
        "a watermark a second arrives",
    )
    bench.figures.add_event(
        "all processes of `rowlock run` when idle",
        f"{sum(share.values()):.1%} of a core",
        "goal: 4 %",
    )


def topics(bench: Bench, count: int = 200) -> None:
    """`count` topics with one event each, from the commit of all to the last one visible."""
    name = "many"
    with contextlib.closing(bench.source.connect(SOURCE_DB)) as connection, connection.cursor() as cursor:
        for number in range(count):
            cursor.execute(f"CREATE TABLE many_{number} (id INT PRIMARY KEY)")
    config = bench.config(name, prefix=name, tables="many_*")
    with (
        rowlock_run(bench, name, config),
        contextlib.closing(bench.targets["postgres"].connect(name)) as target,
        contextlib.closing(bench.source.connect(SOURCE_DB)) as source,
    ):
        wait(lambda: _tables(target) == count, "all tables made", 240, pause=0.2)
        samples = [_round(source, target, count, number) for number in range(10)][
            5:
        ]  # the first ones warm the JVM
    median = sorted(samples)[len(samples) // 2]
    bench.figures.add_event(
        f"{count} topics with one event each, commit → all visible",
        f"{median:.2f} s",
        f"median of {len(samples)}, from {min(samples):.2f} to {max(samples):.2f}; goal 3 s",
    )


def _tables(target: Any) -> int:
    rows = target.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'many_%'").fetchall()
    return int(rows[0][0])


def _round(source: Any, target: Any, count: int, number: int) -> float:
    with source.cursor() as cursor:
        cursor.execute("BEGIN")
        for table in range(count):
            cursor.execute(f"INSERT INTO many_{table} VALUES (%s)", (number,))
        cursor.execute("COMMIT")
    started = time.monotonic()
    union = " UNION ALL ".join(f"SELECT id FROM many_{table}" for table in range(count))
    query = f"SELECT count(*) FROM ({union}) u WHERE id = {number}"
    wait(lambda: target.execute(query).fetchone()[0] == count, f"round {number}", pause=0.03)
    return time.monotonic() - started


def starts(bench: Bench) -> None:
    """`rowlock run` → the first row of a small table, against the last revision with
    micro-batches."""
    made = start.Starts(bench.folder, bench.kafka, bench.source, bench.targets["postgres"])
    start.figures(start.measure(made, start.BEFORE, start.TIMES), bench.figures)


def copies(bench: Bench) -> None:
    """A copy of one table beside a live load, in the servers of its own."""
    copy_table.figures(copy_table.run(bench.copied_rows, 2_000, "int"), bench.figures)


def sweeps(bench: Bench) -> None:
    """A key sweep after a DROP PARTITION beside a live load, in servers of its own."""
    for kind in ("postgres", "mysql"):
        key_sweep.figures(kind, key_sweep.run(bench.swept_rows, 200, kind, "together"), bench.figures)


def times_of_commands(bench: Bench) -> None:
    """`rowlock --help`, `units` and `status` beside a system of 1 and of 1,000 tables."""
    commands.run(bench.folder, bench.kafka, bench.source, bench.targets["postgres"], bench.figures)


def events(bench: Bench) -> None:
    """Into a Kafka target, against a plain copy loop."""
    kafka_target.run(bench.kafka, 60_000, 3, bench.figures)


def coordination(bench: Bench) -> None:
    """The batch system against a thread a machine; heartbeats of many agents; take-overs; moves. They need
    nothing of `bench`."""
    for what, rate in messages.run().items():
        bench.figures.add_event(what, f"{rate:,.0f} messages/s")
    for units in (1_000, 10_000):
        found = heartbeats.run(units, 100)
        bench.figures.add_event(
            f"{units:,} units on 100 agents over gRPC", f"{found['cpu_percent']:.1f} % of a core",
            f"the coordinator's process, steady; goal for 10,000: 20 %; {found['memory_mib']:.0f} MiB",
        )  # fmt: skip
        bench.figures.add_event(
            f"{units:,} units: loss of 10 agents, from the last one's expiry to the whole plan",
            f"{found['planned_s']:.2f} s", "goal for 10,000: 2 s",
        )  # fmt: skip
    for found in core_scale.run():
        bench.figures.add_event(
            f"leader's core alone, {found['units']:,.0f} units on 100 agents",
            f"{found['beat_ms']:,.0f} ms a round of heartbeats, {found['tick_ms']:,.0f} ms a tick",
            f"{found['begin_ms']:,.0f} ms to begin a term; {found['memory_mib']:,.0f} MiB",
        )  # fmt: skip
    taken = takeover.run()
    bench.figures.add_event(
        "take-over after kill -9 of the leading coordinator, until the other one answers as leader over REST",
        ", ".join(f"{seconds:.2f}" for seconds in taken) + " s",
        f"default settings; {max(taken):.2f} at most; goal {takeover.GOAL_S:g} s",
    )
    moved = cluster.run()
    for what, key, goal in PAUSES:
        gaps = moved[key]
        bench.figures.add_event(
            f"{what}, {moved['rows_per_s']:,.0f} rows/s",
            f"p50 {statistics.median(gaps):.2f} s, max {max(gaps):.2f} s",
            f"times: {len(gaps)}; real agents and coordinator, MySQL → PostgreSQL; {goal}".rstrip("; "),
        )


PAUSES = (
    ("a topic's longest pause without a move", "none", ""),
    ("a topic's longest pause in a move of its apply unit", "apply", "goal: p50 0.3 s"),
    ("a topic's longest pause in a move of its capture unit", "capture", ""),
    (
        "a topic's longest pause in the loss of the agent that runs it",
        "lost",
        "goal: the lease of 10 s and 1 s",
    ),
    ("a paused unit with a backlog is resumed → its next commit", "resumed", "goal 0.5 s"),
    ("an agent starts → it takes units", "joined", "goal 3 s"),
)
"""What is measured beside a load: its name, the key in the figures of bench.cluster, its goal."""


PARTS: dict[str, Callable[[Bench], None]] = {
    "capture": capture, "apply": apply, "start": starts,
    "latency": latency, "load": loaded_latency.run, "topics": topics,
    "kafka": events, "copy": copies, "sweep": sweeps,
    "commands": times_of_commands, "coordination": coordination,
}  # fmt: skip


READING = "## How to read it"
"""Heading of what people write below the figures; it stays."""


def report(figures: Figures, command: str, before: str) -> str:
    """Return the page. `before`: the page as it was."""
    lines = [
        "# Benchmarks", "",
        (f"Measured on {datetime.now(UTC):%Y-%m-%d} by `{command}` on a machine with 2 cores and 24 GiB "
            "that runs everything at once:"),
        ("source (MariaDB 11.4), Kafka 4.1, Spark 4.0, targets (PostgreSQL 18, MySQL 9.7), and the "
            "measuring process. Absolute figures drift"),
        "from run to run and machine to machine; compare ratios within one run.", "",
        ("Workload: row events in transactions of 10 (half insert, 40 % update, 10 % delete) on a "
            "table of 7 columns with a primary"),
        "key and a unique key (bench/workload.py).", "",
        "| what | figure | notes |", "|---|---|---|",
        *(f"| {what} | {figure} | {note} |" for what, figure, note in figures.count_rows), "",
        *(READING + text for text in before.split(READING)[1:]),
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts")
    parser.add_argument("--copied-rows", type=int, default=10_000_000, help="of the table of the copy")
    parser.add_argument("--swept-rows", type=int, default=1_000_000, help="of the table of the key sweep")
    parser.add_argument("--no-write", action="store_true", help="leave docs/benchmarks.md alone")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    failed = []
    with benches(options.events) as bench:
        bench.copied_rows, bench.swept_rows = options.copied_rows, options.swept_rows
        for part in options.only.split(","):
            try:
                PARTS[part](bench)
            except Exception:  # noqa: BLE001  # what the others measured in half an hour is not lost with it
                traceback.print_exc()
                failed.append(part)
        if not options.no_write:
            REPORT.write_text(
                report(bench.figures, f"make bench, {options.events:,} events", REPORT.read_text())
            )
            print(f"written: {REPORT.name}")
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
