"""Two executors against one: the rate of apply, and its processor time for each row.

    python -m bench.spark_executors [--rows 4000] [--tables 20] [--delay-ms 5] [--cores 0.5]

Needs root: each executor is on a host of its own (tests.servers.spark_hosts) whose processes together get
`--cores` of a core. The target answers `--delay-ms` later than it would, which costs it nothing. A backlog of
`--rows` rows in each of `--tables` tables arrives while their units are paused.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deploy.embedded.ports import HOST, pick_port
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.faults.spark_executors import RunOnHosts, build_host, make_package, run_on_hosts

DATABASE = "executors"


async def relay(port: int, server: int, delay_s: float) -> None:
    """Pass connections on to a server, and each of its answers `delay_s` later."""
    loop = asyncio.get_running_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait_s: float) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if wait_s:
                    loop.call_later(wait_s, writer.write, data)
                else:
                    writer.write(data)
                    await writer.drain()
        loop.call_later(wait_s, writer.close)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(HOST, server)
        await asyncio.gather(pump(reader, there[1], 0.0), pump(there[0], writer, delay_s))

    async with await asyncio.start_server(serve, HOST, port) as listening:
        await listening.serve_forever()


def measure(system: RunOnHosts, rows: int, first: int) -> tuple[float, float]:
    """Apply a backlog of rows with ids from `first` on. Return rows per second, and processor seconds of
    the hosts."""
    units = [f"apply/to-hq/{system.topic('branch', name)}" for name in system.tables]
    for unit in units:
        system.invoke("units", "pause", unit)
    system.run.until(lambda: _count_replicating(system, units) == 0, "the pause")
    for name in system.tables:
        for at in range(first, first + rows, 1000):
            values = ",".join(f"({number},{number})" for number in range(at, min(at + 1000, first + rows)))
            system.change("branch", f"INSERT INTO {name} VALUES {values}")
    time.sleep(15)  # capture is far ahead of a half core
    began, used = time.monotonic(), _count_used(system)
    for unit in units:
        system.invoke("units", "resume", unit)
    last = first + rows - 1
    query = " + ".join(f"(SELECT count(*) FROM {name} WHERE id = {last})" for name in system.tables)
    applied: list[float] = []

    def is_applied() -> bool:
        found = system.read("hq", f"SELECT {query}")
        if found and int(found[0][0]) > 0 and not applied:
            applied.append(time.monotonic())
        return bool(found) and int(found[0][0]) == len(system.tables)

    system.run.until(is_applied, "the backlog is applied", 600)
    seconds = time.monotonic() - began
    return rows * len(system.tables) / seconds, _count_used(system) - used


def _count_replicating(system: RunOnHosts, units: list[str]) -> int:
    listed = system.invoke("units", "list", "--state", "replicating", "--output", "json").stdout
    return sum(unit in listed for unit in units)


def _count_used(system: RunOnHosts) -> float:
    return sum(host.cpu.used_s for host in system.cluster.hosts if host.cpu is not None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--delay-ms", type=float, default=5.0)
    parser.add_argument("--cores", type=float, default=0.5)
    parser.add_argument("--relay", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.relay:
        asyncio.run(relay(*given.relay, given.delay_ms / 1000))
        return
    with (
        MariaDB() as source, PostgreSQL() as office, Kafka() as broker,
        tempfile.TemporaryDirectory(prefix="rowlock-bench-") as name,
    ):  # fmt: skip
        folder, port = Path(name), pick_port()
        words = ("-m", "bench.spark_executors", "--relay", port, office.port, "--delay-ms", given.delay_ms)
        delaying = subprocess.Popen([sys.executable, *map(str, words)])
        try:
            _compare(folder, source, office, broker, port, given)
        finally:
            delaying.kill()
            delaying.wait()


def _compare(
    folder: Path, source: MariaDB, office: PostgreSQL, broker: Kafka, port: int, given: argparse.Namespace
) -> None:
    token = folder / "executor-token"
    hosts = [build_host(token, cpu=given.cores) for _ in range(2)]

    def configure(made: RunOnHosts) -> None:
        made.cluster.expose(port)
        made.parts["targets"]["hq"]["port"] = port

    package = make_package(folder)
    with run_on_hosts(
        folder, package, source, broker, office, DATABASE, tables=given.tables, hosts=hosts,
        configure=configure,
    ) as system:  # fmt: skip
        system.until_open("host1", "host2")
        found: dict[int, list[tuple[float, float]]] = {2: [], 1: []}
        first, rows = 1000, given.rows
        for count in (2, 1):
            if count == 1:
                system.cluster.hosts.pop().close()
                system.until_open("host1")
            for _ in range(3):  # the first one warms up
                found[count].append(measure(system, rows, first))
                rate, used = found[count][-1]
                per_row = used / rows / given.tables * 1e6
                print(
                    f"{count} executors: {rate:,.0f} rows/s, {per_row:.1f} µs a row, load {os.getloadavg()}"
                )
                first += rows
        best = {count: max(runs[1:]) for count, runs in found.items()}
        times, share = best[2][0] / best[1][0], best[2][1] / best[1][1]
        print(f"two executors against one: {times:.2f} times the rate, {share:.2f} times the processor time")


if __name__ == "__main__":
    main()
