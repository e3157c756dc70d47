"""Short commands to try with a demo that keeps running, in the demo's folder.

`write_programs` puts them there. Two of them are this module: `follow` and `kill-worker`.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import psycopg
import pymysql
from confluent_kafka import Consumer, TopicPartition

from rowlock.demo.bank import DATABASE, PROBES
from rowlock.demo.world import BRANCHES, OFFICE, PACKAGES, DemoServers
from rowlock.errors import CommandError

FOLLOW_GIVE_UP_S = 60.0
_POLL_S = 0.002
_TRIES = """
Everything keeps running until Ctrl-C. In another terminal:

  cd {folder}

  # the databases, and how far rowlock is
  ./north -e "SELECT kind, count(*), sum(balance) FROM accounts GROUP BY kind"
  ./office -c "SELECT branch, count(*), sum(balance) FROM accounts GROUP BY branch"
  ./rowlock status
  ./rowlock verify

  # one row on its way: committed, in Kafka, in the head office
  ./follow

  # kill -9 of the process that reads north's log; another one continues
  ./kill-worker
  ./follow
  ./rowlock events --last 5

  # a new column; the head office's table follows
  ./north -e "ALTER TABLE customers ADD COLUMN phone VARCHAR(20)"
  ./north -e "UPDATE customers SET phone = '0241 1' WHERE id = 7"
  ./office -c "SELECT * FROM customers WHERE id = 7"

  # a row that PostgreSQL refuses; it recovers once it is corrected at its source
  ./north -e "INSERT INTO accounts VALUES (9000001, 'DE00', 7, 'giro', 5.00, '0000-00-00')"
  ./rowlock quarantine list
  ./north -e "UPDATE accounts SET opened = '2026-01-01' WHERE id = 9000001"
  ./rowlock quarantine list --resolved
  ./office -c "SELECT * FROM accounts WHERE id = 9000001"

  # the log of rowlock
  tail -f rowlock.processes.log
"""


class Sighting(NamedTuple):
    """A place where a followed row was seen, and how many seconds after its commit."""

    place: str
    seconds: float


def write_programs(made: DemoServers, run_pid: int) -> None:
    """Write the commands into the demo's folder. `run_pid`: the process of `rowlock run`."""
    clients = {name: server.build_shell_command(DATABASE) for name, server in made.branches.items()}
    clients["office"] = made.office.build_shell_command(OFFICE)
    own = [sys.executable, "-m", "rowlock.demo.tries"]
    ports = [str(made.branches[BRANCHES[0]].port), str(made.office.port)]
    programs = clients | {
        "rowlock": find_program(),
        "follow": [*own, "follow", *ports, made.kafka.bootstrap],
        "kill-worker": [*own, "kill", str(run_pid)],
    }
    packages = f"export PYTHONPATH={shlex.quote(str(PACKAGES))}\n"
    for name, command in programs.items():
        file = made.folder / name
        file.write_text(f'#!/bin/sh\n{packages}exec {shlex.join(command)} "$@"\n')
        file.chmod(0o700)


def format_tries(folder: Path) -> str:
    """Return what the demo prints when it keeps running: each line is a command, or a comment."""
    return _TRIES.format(folder=shlex.quote(str(folder)))


def find_program() -> list[str]:
    """Return the command of this rowlock, also where its folder is not on PATH, as after `make demo`."""
    script = Path(sys.executable).with_name("rowlock")
    return [str(script)] if script.exists() else [sys.executable, "-m", "rowlock.cli"]


def follow_row(
    bank: Any, office: Any, find_record: Callable[[int], int | None], number: int
) -> list[Sighting]:
    """Commit a transfer with the id `number` at the first branch, and return when it was seen where.

    `find_record`: the offset of its record in Kafka, None while there is none.
    """
    with bank.cursor() as cursor:
        cursor.execute(
            "INSERT INTO transfers VALUES (%s, 1, 2, 0.01, UTC_TIMESTAMP(3), 'followed')", (number,)
        )
    committed = time.perf_counter()
    seen: dict[str, Sighting] = {}
    find = "SELECT 1 FROM public.transfers WHERE branch = %s AND id = %s"
    while "office" not in seen or "kafka" not in seen:
        elapsed = time.perf_counter() - committed
        if elapsed > FOLLOW_GIVE_UP_S:
            raise CommandError(f"transfer {number} has not arrived after {elapsed:.0f} s: ./rowlock status")
        if "kafka" not in seen and (offset := find_record(number)) is not None:
            seen["kafka"] = Sighting(f"in Kafka, offset {offset:,}", time.perf_counter() - committed)
        if "office" not in seen and office.execute(find, (BRANCHES[0], number)).fetchone():
            seen["office"] = Sighting("in the head office", time.perf_counter() - committed)
        time.sleep(_POLL_S)
    return sorted(seen.values(), key=lambda sighting: sighting.seconds)


class _TopicTail:
    """The records of a topic that are written from now on."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "rowlock-demo", "fetch.wait.max.ms": 10}
        self._consumer = Consumer(settings)
        _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        self._consumer.assign([TopicPartition(topic, 0, end)])
        self.close = self._consumer.close

    def find_record(self, number: int) -> int | None:
        """Return the offset of the record that contains the number; None if it has not come yet."""
        for message in self._consumer.consume(500, timeout=0):
            if message.error() is None and str(number).encode() in (message.value() or b""):
                return message.offset()
        return None


def _follow_transfer(bank_port: int, office_port: int, bootstrap: str) -> None:
    topic = f"demo.{BRANCHES[0]}.{DATABASE}.transfers"
    number = 2 * PROBES + time.time_ns() // 1_000_000
    with (
        contextlib.closing(_TopicTail(bootstrap, topic)) as tail,
        pymysql.connect(
            host="127.0.0.1", port=bank_port, user="root", database=DATABASE, autocommit=True
        ) as bank,
        psycopg.connect(
            host="127.0.0.1", port=office_port, user="postgres", dbname=OFFICE, autocommit=True
        ) as office,
    ):
        print(f"transfer {number} of 0.01 is committed at {BRANCHES[0]}")
        for sighting in follow_row(bank, office, tail.find_record, number):
            print(f"{sighting.seconds * 1000:7,.0f} ms later: {sighting.place}")


def _kill_worker(run_pid: int) -> None:
    for process in psutil.Process(run_pid).children(recursive=True):
        words = process.cmdline()
        if "producer.main" in words and BRANCHES[0] in words:
            process.kill()
            print(f"killed process {process.pid}, which read the log of {BRANCHES[0]}")
            return
    raise CommandError(f"no process reads the log of {BRANCHES[0]} at this moment: see ./rowlock status")


def main() -> None:
    parser = argparse.ArgumentParser(prog="rowlock.demo.tries")
    commands = parser.add_subparsers(dest="command", required=True)
    follow = commands.add_parser("follow")
    follow.add_argument("bank_port", type=int)
    follow.add_argument("office_port", type=int)
    follow.add_argument("bootstrap")
    commands.add_parser("kill").add_argument("run_pid", type=int)
    given = parser.parse_args()
    try:
        if given.command == "follow":
            _follow_transfer(given.bank_port, given.office_port, given.bootstrap)
        else:
            _kill_worker(given.run_pid)
    except CommandError as error:
        sys.exit(f"rowlock: {error}")


if __name__ == "__main__":
    main()
