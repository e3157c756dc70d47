"""The apply units of an agent: one process `consumer.main` runs them all (its lines are in
schemas/units.py).

The process is started at once, because Spark takes seconds, and again after it dies, with a growing
delay; all its units have ended then. Commands that arrive before the process exists wait for it.
"""

from __future__ import annotations

import random
import threading
from time import monotonic
from typing import Any

import msgspec
import structlog

from rowlock.agent.reported import ReportedFigures
from rowlock.agent.unit_ledger import UnitLedger
from rowlock.processes.child_process import ChildProcess, build_child_command
from schemas.backoff import Backoff
from schemas.config.changes import handed
from schemas.config.model import Config
from schemas.patience import scale_timeout
from schemas.problems import Problem, decode_problem, encode_problem
from schemas.units import (
    ApplyName,
    Prepared,
    UnitCommand,
    UnitLine,
    UnitOperation,
    UnitProgress,
    WorkerEnded,
    parse_unit_name,
)

_LOG = structlog.get_logger()

APPLY_STOP_GRACE_S = 25.0
"""Seconds that the process may take to fence all its units and to stop Spark, on an idle machine."""
_UNIT_COUNT_OFFSET = 1e9
"""Larger than any number of processor seconds, so that an effort counted in units exceeds one counted in
seconds.
"""
APPLY_RESTART_BACKOFF = Backoff(first=1.0, longest=30.0, quiet=60.0)
"""Of the process. `quiet` counts from its start."""


class ApplyWorker:
    """The apply process, or its successor."""

    def __init__(self, config: Config, ledger: UnitLedger, figures: ReportedFigures) -> None:
        self._config = config
        self._ledger, self._figures = ledger, figures
        self._mutex = threading.RLock()
        self._process: ChildProcess | None = None
        self._waiting: list[str] = []
        self._closing = threading.Event()
        self._number = 0
        self._backoff = APPLY_RESTART_BACKOFF
        self._readied = 0
        self._error: str | None = None

    def warm_up(self) -> None:
        """Start the process if any pipeline is configured."""
        if self._config.pipelines:
            self._start_process()

    def use_config(self, config: Config) -> None:
        """Run the units that are prepared from now on under this configuration: send it to the process,
        or start one.
        """
        with self._mutex:
            self._config = config
            if self._process is not None:
                self._process.send_line(handed.encode_config(config).decode())
        self.warm_up()

    def prepare(self, unit: str, assignment: int, mark: UnitProgress | None) -> None:
        """Prepare the unit. Raises ValueError for a pipeline that is not configured here."""
        named = parse_unit_name(unit)
        if not isinstance(named, ApplyName) or named.pipeline not in self._config.pipelines:
            raise ValueError(f"{unit}: this agent's configuration has no such pipeline")
        self._figures.begin_unit(named.pipeline, named.topic)
        self._send_command(UnitCommand(UnitOperation.PREPARE, unit, assignment, mark))

    def start(self, unit: str, assignment: int) -> None:
        self._send_command(UnitCommand(UnitOperation.START, unit, assignment))

    def remove(self, unit: str, assignment: int) -> None:
        self._send_command(UnitCommand(UnitOperation.REMOVE, unit, assignment))

    def measure_effort(self, unit: str, assignment: int) -> float:
        """Return a number that grows while the process starts, and later with every unit that it has
        prepared.

        Spark takes seconds to start, more on a busy machine. Once the process runs, its processor time
        belongs to the other units.
        """
        del unit, assignment
        with self._mutex:
            process, readied = self._process, self._readied
        return _UNIT_COUNT_OFFSET + readied if readied or process is None else process.measure_cpu_s()

    def close(self) -> None:
        """Stop all units and end the process, in the end by force."""
        self._closing.set()
        with self._mutex:
            process = self._process
        if process is None:
            return
        process.end_input()
        if not process.wait_for_exit(scale_timeout(APPLY_STOP_GRACE_S)):
            _LOG.warning("apply process killed")
            process.kill()
            process.wait_for_exit(APPLY_STOP_GRACE_S)

    def _send_command(self, command: UnitCommand) -> None:
        text = msgspec.json.encode(command).decode()
        with self._mutex:
            if self._process is None:
                self._waiting.append(text)
            else:
                self._process.send_line(text)

    # the process

    def _start_process(self) -> None:
        with self._mutex:
            if self._process is not None or self._closing.is_set():
                return
            self._backoff = self._backoff.with_start(monotonic())
            self._number += 1
            self._readied, self._error = 0, None
            number = self._number
            command = build_child_command("consumer.main", self._config.path)
            self._figures.begin_apply()
            try:
                process = ChildProcess(
                    "apply",
                    command,
                    self._handle_line,
                    lambda code: self._handle_exit(number, code),
                    self._config,
                )
            except OSError as error:
                self._end_lost_units(encode_problem(Problem(f"the apply process cannot be started: {error}")))
                return
            self._process = process
            for line in self._waiting:
                process.send_line(line)
            self._waiting.clear()

    def _handle_exit(self, number: int, code: int) -> None:
        with self._mutex:
            if self._number != number:
                return
            self._process = None
            self._figures.forget_slots()
            if self._closing.is_set() and code == 0:
                return
            self._end_lost_units(self._error or f"the apply process ended with code {code}")

    def _end_lost_units(self, error: str) -> None:
        """Report all units of the process as ended, and start a new process after a while."""
        self._waiting.clear()
        for unit, assignment in self._ledger.list_units():
            if isinstance(parse_unit_name(unit), ApplyName):
                self._ledger.report_event(unit, WorkerEnded(assignment, None, error))
        if self._closing.is_set():
            return
        self._backoff = self._backoff.with_failure(monotonic())
        _LOG.warning(
            "apply process ended, will be restarted",
            error=str(decode_problem(error)),
            restart_in_s=self._backoff.pause,
        )
        pause = self._backoff.pause * random.uniform(0.8, 1.2)  # noqa: S311
        threading.Thread(target=self._start_later, args=(pause,), name="apply restart", daemon=True).start()

    def _start_later(self, pause: float) -> None:
        if not self._closing.wait(pause):
            self._start_process()

    # lines of the process

    def _handle_line(self, line: dict[str, Any]) -> None:
        if line.get("kind") == "ready":
            _LOG.info("Spark started", seconds=line.get("seconds"))
        if line.get("kind") == "failed":
            self._error = str(line.get("error"))
        if line.get("kind") == "unit":
            reported = msgspec.convert(line, UnitLine)
            self._readied += isinstance(reported.event, Prepared)
            named = parse_unit_name(reported.unit)
            if isinstance(reported.event, WorkerEnded) and isinstance(named, ApplyName):
                self._figures.end_unit(*named)
            self._ledger.report_event(reported.unit, reported.event)
        else:
            if line.get("kind") == "status":
                self._figures.record_status(line)
            if line.get("kind") == "slots":
                self._figures.record_slots(line)
                has_all = line["open"] >= line["configured"]
                log, event = (_LOG.info, "all slots open") if has_all else (_LOG.warning, "slots missing")
                log(event, open=line["open"], configured=line["configured"], failures=line["failures"])
            _LOG.debug("status of a process", child="apply", status=line)
