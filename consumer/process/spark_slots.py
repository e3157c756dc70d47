"""Keeps the slots in Spark's tasks running: starts a query for each, and again when it has ended; reports how
many are open.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from consumer.reporting.protocol import LineWriter
from consumer.reporting.slot_lines import SlotLines
from consumer.slots.certificate import make_certificate
from consumer.slots.channel import SlotServer
from consumer.slots.pool import SlotPool
from consumer.spark.executor_files import read_executor_token
from consumer.spark.query import count_slots, find_cause
from consumer.spark.slot_task import SlotTask
from consumer.spark.versions import collect_versions
from schemas.backoff import Backoff
from schemas.config.addresses import join_address
from schemas.config.spark import SparkConfig

if TYPE_CHECKING:  # imported with Spark, in its thread
    from consumer.process.spark_session import Spark
    from consumer.spark.slot_query import SlotQuery

log = structlog.get_logger(__name__)

LOOK_S = 1.0
"""Interval in seconds at which the queries are looked at."""
RESTART_BACKOFF = Backoff(first=1.0, longest=30.0, quiet=120.0)
"""The delays between two starts of a slot's query."""


class SparkSlots:
    """The slots in Spark's tasks, and the server of their streams. `stop`: set when the process ends."""

    def __init__(
        self,
        pool: SlotPool,
        spark: Spark,
        config: SparkConfig,
        folder: Path,
        stop: threading.Event,
        *,
        lines: LineWriter,
    ) -> None:
        """`folder`: of this process, for the token of a local master, and checkpoints. `lines`: stdout.

        Raises SparkStartError if a cluster's slots have no token, or cannot reach this process.
        """
        self._pool, self._spark, self._stop, self._folder = pool, spark, stop, folder.resolve() / "slots"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._versions = collect_versions()
        certificate, driver = make_certificate(), config.driver
        token_file = (config.executor_token_file if config.is_cluster else None) or self._make_token()
        host, port = (driver.host or "", driver.channel_port) if config.is_cluster else ("127.0.0.1", 0)
        token = read_executor_token(token_file)
        self._server = SlotServer(pool, certificate, token, join_address(host, port))
        address = join_address(host, self._server.port)
        self._tasks = {
            number: SlotTask(number, address, certificate.pem, str(token_file), config.is_cluster)
            for number in range(1, count_slots(config) + 1)
        }
        self._queries: dict[int, SlotQuery] = {}
        self._backoffs = dict.fromkeys(self._tasks, RESTART_BACKOFF)
        self._slot_lines = SlotLines(len(self._tasks), lines, spark.count_cores)

    def _make_token(self) -> Path:
        """Return the file with a new token, which slots on this machine can read."""
        file = self._folder / "token"
        _write_secret(file, secrets.token_hex(32))
        return file

    def run(self) -> None:
        """Keep the queries running until the process ends."""
        self._server.start()
        while not self._stop.is_set():
            for number in self._tasks:
                self._start_if_ended(number, time.monotonic())
            self._slot_lines.write_changes(self._pool.count_open(), time.monotonic())
            self._pool.end_troubles()
            self._stop.wait(LOOK_S)

    def _start_if_ended(self, number: int, now: float) -> None:
        """Start a slot's query unless it runs. py4j raises errors of any class, and a retry may succeed."""
        backoff = self._backoffs[number]
        try:
            query = self._queries.get(number)
            if query is not None and query.active:
                return
            if query is not None:
                host, error = query.explain_end()
                log.warning("slot's query failed", slot=number, host=host, error=error)
                self._slot_lines.note_failure(host, error)
                self._backoffs[number] = backoff = backoff.with_failure(now)
                query.stop()
                del self._queries[number]
            if now >= backoff.next_at:
                self._queries[number] = self._spark.start_slot(
                    self._tasks[number], self._versions, self._folder
                )
        except Exception as fault:  # noqa: BLE001  # see above
            cause = find_cause(str(fault).splitlines())
            log.warning("slot not started", slot=number, error=cause)
            self._slot_lines.note_failure("", cause)
            self._backoffs[number] = backoff.with_failure(now)

    def close(self) -> None:
        """Stop the queries. The slots have been closed."""
        with ThreadPoolExecutor(max(1, len(self._queries)), "stop") as threads:
            for query in self._queries.values():
                threads.submit(_stop_query, query)
        self._server.close()


def _stop_query(query: SlotQuery) -> None:
    try:
        query.stop()
    except Exception as error:  # noqa: BLE001  # py4j raises the query's error; it has ended either way
        log.warning("slot's query failed while stopping", error=find_cause(str(error).splitlines()))


def _write_secret(path: Path, text: str) -> None:
    """Write a file that only this user may read."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
