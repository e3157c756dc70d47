"""The state of a worker process between tasks: connections, decoders, and the run's settings.

A topic is not bound to a worker, so connections are cached per (process, target, lane number) and not
per topic: slots × lanes of them, whatever the number of topics.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec
import structlog

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.lock_watch import LockWatch
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.readers.kafka_reader import build_reader_settings, read_range, read_rest
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report, ReportSender, clear_figures
from consumer.attempt.spec import UnitAssignment, UnitSpec
from consumer.attempt.unit_errors import InputLostError
from consumer.errors import ConsumerError, TransientError
from consumer.spark.active_units import ActiveUnitsReader, AttemptLocks
from consumer.spark.pipeline import TaskConfig
from consumer.tables.definition import ActiveDefinition
from consumer.tables.shared_tables import SharedTableReader
from consumer.targets.base import UnitTarget
from consumer.targets.dialect import open_target
from schemas.config.model import TargetConfig
from schemas.problems import decode_problem

log = structlog.get_logger(__name__)

MAX_BOARDS = 8
"""Queries of a pipeline that a worker remembers. It meets one at a time, or two while one replaces the
other."""
PAUSE_S = 1.0
"""Seconds after a failed connection during which the task's other topics do not try again."""


class ConnectionCache:
    """Connections to a target, by lane number; a whole-batch target has one.

    `name`: the connections' name in the server's list of sessions.
    """

    def __init__(self, target: TargetConfig, name: str) -> None:
        self._target = target
        self._name = name
        self._open: dict[int, UnitTarget] = {}
        self._failed_at = -PAUSE_S

    def use_target(self, target: TargetConfig) -> None:
        """Open connections with these settings from now on, which differ in secrets alone."""
        self._target = target

    def get_connection(self, number: int) -> UnitTarget:
        connection = self._open.get(number)
        if connection is None:
            connection = self._open[number] = self._open_connection(number)
        return connection

    def _open_connection(self, number: int) -> UnitTarget:
        if time.monotonic() - self._failed_at < PAUSE_S:
            raise TransientError("the target could not be reached a moment ago")
        try:
            return open_target(self._target, name=f"{self._name} lane {number}")
        except TransientError:
            self._failed_at = time.monotonic()
            raise

    def drop_if_broken(self, number: int) -> None:
        connection = self._open.get(number)
        if connection is not None and not connection.ping():
            self.drop_connection(number)

    def drop_connection(self, number: int) -> None:
        connection = self._open.pop(number, None)
        if connection is not None:
            with suppress(ConsumerError):
                connection.close()

    def close(self) -> None:
        for number in list(self._open):
            self.drop_connection(number)


class QueryWorker:
    """A process's part in one run of a query: in a Python worker of Spark, or in the driver, which
    passes its `attempts`.
    """

    def __init__(self, config: TaskConfig, attempts: AttemptLocks | None = None) -> None:
        self.run = config.run
        self._connections = ConnectionCache(config.target, f"rowlock {config.pipeline}")
        self._tables: dict[UnitAssignment, ActiveDefinition] = {}
        self._sharers = SharedTableReader()
        self._sender = ReportSender(config.report_port, config.report_token)
        self._boards: dict[str, ActiveUnitsReader] = {}
        self._attempts = attempts or AttemptLocks(config.attempts)
        self._own_attempts = attempts is None
        self._reader = build_reader_settings(config.bootstrap, config.kafka_options)
        self._stopped: dict[str, Report] = {}
        self._locks = LockWatch(lambda report: self.send_reports([report]))

    def is_unit_active(self, config: TaskConfig, topic: str) -> bool:
        """Return whether the unit is active in the query now."""
        return self._get_active_units(config).get_epoch(topic) is not None

    def read_records(self, topic: str, start: int, upto: int) -> Iterator[RecordSlice]:
        """Return the records [start, upto) of a topic, read from Kafka directly."""
        return read_range(self._reader, topic, start, upto)

    def _find_begin(self, topic: str, after: int, hint: int | None) -> tuple[int, bytes] | None:
        return find_begin(
            partial(self.read_records, topic), partial(read_rest, self._reader, topic), after, hint
        )

    def apply_slices(self, config: TaskConfig, topic: str, slices: Iterable[RecordSlice]) -> Report | None:
        """Run one attempt of a unit if it is active in the query.

        A fenced or stopped unit is not tried again.
        """
        with self._attempts.lock_attempt(
            topic
        ):  # before the active units are read, so that a process which deactivates the unit sees the lock
            board = self._get_active_units(config)
            epoch = board.get_epoch(topic)
            spec = config.units.get(topic)
            if epoch is None or spec is None:
                return None
            stopped = self._stopped.get(topic)
            if stopped is not None and stopped.epoch == epoch:
                return stopped
            report = msgspec.structs.replace(
                self._run_attempt(
                    replace(spec, epoch=epoch), _yield_while_owned(board, topic, epoch, slices)
                ),
                query=config.query,
            )
            if report.state in ("stopped", "fenced"):
                self._stopped[topic] = clear_figures(report)
            return report

    def _get_active_units(self, config: TaskConfig) -> ActiveUnitsReader:
        board = self._boards.get(config.board)
        if board is None:
            board = self._boards[config.board] = ActiveUnitsReader(config.board)
            while len(self._boards) > MAX_BOARDS:
                del self._boards[next(iter(self._boards))]
        return board

    def _run_attempt(self, spec: UnitSpec, slices: Iterable[RecordSlice]) -> Report:
        topic = spec.unit.topic
        report = apply_topic(
            spec,
            self._connections,
            AttemptInputs(
                slices,
                partial(self.read_records, topic),
                find_begin=partial(self._find_begin, topic),
                watch_transaction=self._locks.watch_transaction,
                sharers=self._sharers,
            ),
            self._tables,
        )
        if report.state == "fenced":  # as each takeover does it: the newer attempt goes on
            log.info(
                "unit was taken over by a newer attempt",
                topic=topic,
                message=str(decode_problem(report.message)),
            )
        elif report.state == "behind":  # a stopped unit is logged once, by the process that owns it
            log.warning(
                "unit lags", topic=topic, offset=report.offset, message=str(decode_problem(report.message))
            )
        return report

    def send_reports(self, reports: list[Report]) -> None:
        """Send reports to the driver. Figures may be lost, so a full buffer is no error."""
        with suppress(OSError):
            self._sender.send(reports)

    def close(self) -> None:
        """Close the connections, the sender, and the attempt locks if they are its own."""
        self._locks.close()
        self._connections.close()
        self._sender.close()
        if self._own_attempts:
            self._attempts.close()


def _yield_while_owned(
    board: ActiveUnitsReader, topic: str, epoch: int, slices: Iterable[RecordSlice]
) -> Iterator[RecordSlice]:
    """Yield `slices` while the unit is active under `epoch`.

    Raises InputLostError if Spark's input of the task breaks.
    """
    rest = iter(slices)
    while True:
        try:
            records = next(rest, None)
            ours = records is not None and board.get_epoch(topic) == epoch
        except ConsumerError:
            raise  # the topic is read from Kafka directly: the error is the unit's own
        except Exception as error:
            raise InputLostError(f"Spark could not read {topic}: {error}") from error
        if records is None or not ours:
            return
        yield records
