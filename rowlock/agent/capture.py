"""The capture units of an agent: each is a process `producer.main --wait`, started when the unit is to
be prepared.

A prepared process has loaded everything and writes nothing; a line on its stdin lets it begin. It
reports its progress, why it cannot go on, and why it ends. When a process ends by itself its unit has
ended, and the coordinator decides what happens next. There is one exception: if a unit has begun and its
process reports that a person must act, the unit stays here and waits, because no other agent could do
better. It is retried with a new process, with a growing delay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import msgspec
import structlog

from coordinator.core.progress import advance_mark
from rowlock.agent.reported import ReportedFigures
from rowlock.agent.unit_ledger import UnitLedger
from rowlock.processes.child_process import ChildProcess, build_child_command
from schemas.backoff import Backoff
from schemas.config.changes import handed
from schemas.config.changes.parts import compute_part_digests, format_source_part
from schemas.config.model import Config
from schemas.findings import TRIES_AGAIN
from schemas.io.refused_logins import REFUSED_LOGIN_BACKOFF
from schemas.patience import scale_timeout
from schemas.problems import Problem, decode_problem, encode_problem
from schemas.units import (
    CaptureCommand,
    CaptureName,
    OldestAgents,
    Prepared,
    UnitProgress,
    UnitProgressed,
    WorkerEnded,
    parse_unit_name,
)

_LOG = structlog.get_logger()

CAPTURE_STOP_GRACE_S = 15.0
"""Seconds that a capture process may take to have everything acknowledged when it is stopped, on an idle
machine.
"""


CAPTURE_REFUSED_CODE = 2
"""The exit code of a process that needs a person."""
REFUSAL_RETRY_BACKOFF = Backoff(first=15.0, longest=120.0)
"""When it is checked again whether the person has acted."""
OnRefusal = Callable[[str, str], None]


@dataclass(slots=True)
class _CaptureUnit:
    """A capture unit and its process."""

    name: str
    assignment: int
    source: str
    config: Config
    """The configuration under which it was prepared, and goes on; the secrets may be newer."""
    process: ChildProcess | None = None
    mark: UnitProgress | None = None
    error: str | None = None
    """Why its process ends, as the process has reported."""
    started_with: Config | None = None
    """The configuration under which its process was started."""
    login_refused: bool = False
    """Whether a server has refused a log-in of its process."""
    last_refusal: str | None = None
    """Why a person must act; None again after the process has reported anything else."""
    started: bool = False
    stopped: bool = False
    finished: bool = False
    """Its snapshot was all it had to do; it is kept as a unit without work."""
    retry_timer: threading.Timer | None = None
    """Starts a new process; set while the unit waits for a person."""
    retry_backoff: Backoff = REFUSAL_RETRY_BACKOFF
    """How often it has been retried."""
    login_backoff: Backoff = REFUSED_LOGIN_BACKOFF
    """How often it has been retried after a refused log-in."""
    events: int = 0
    counted_at: float = field(default_factory=monotonic)

    @property
    def part(self) -> str:
        """The part of the configuration that the unit depends on."""
        return format_source_part(self.source)

    def use_config(self, config: Config) -> None:
        """Start its next process under this configuration."""
        self.config, self.login_backoff = config, REFUSED_LOGIN_BACKOFF

    def start_process(
        self, on_line: Callable[[dict[str, Any]], None], on_exit: Callable[[int], None]
    ) -> None:
        """Start its process, which waits until it may begin."""
        command = build_child_command(
            "producer.main",
            self.config.path,
            "--source",
            self.source,
            "--wait",
            "--gen-at-least",
            str(self.assignment),
        )
        self.error, self.started_with = None, self.config
        self.process = ChildProcess(f"capture {self.source}", command, on_line, on_exit, self.config)

    def record_progress(self, line: dict[str, Any]) -> UnitProgressed:
        """Record how far its process has captured, and return it with the rows/s since the last report.

        No person must act then, and the next failure counts as the first one.
        """
        era, file, pos, row = line["position"]
        at, events = line["commit_ts_ms"], line["events"]
        # A log counts commits in seconds, the clock of an idle source in ms: a transaction can be older
        # than the progress before it.
        reported = UnitProgress(at, at, (era, file, pos, row))
        self.mark = mark = advance_mark(self.mark, reported) or reported
        now = monotonic()
        rate = round(max(0, events - self.events) / max(0.1, now - self.counted_at))
        self.events, self.counted_at = events, now
        self.last_refusal, self.retry_backoff = None, replace(self.retry_backoff, failures=0)
        self.login_backoff = REFUSED_LOGIN_BACKOFF
        return UnitProgressed(self.assignment, mark, rate)

    def record_failure(self, error: str, *, login_refused: bool) -> None:
        """Record why its process is about to end."""
        self.error, self.login_refused = error, login_refused

    def record_refusal(self, error: str | None) -> bool:
        """Record why a person must act (None: no person must); return whether that is new."""
        is_new = error != self.last_refusal
        self.last_refusal = error
        return is_new

    def finish_snapshot(self) -> None:
        """Go on as a unit without work: its snapshot was all it had to do."""
        self.finished = True

    def schedule_retry(self, retry: Callable[[], None]) -> None:
        """Call `retry` after a pause that grows with each retry, at once if the process did not have the
        present secrets.
        """
        if self.login_refused:
            backoff = self.login_backoff = self.login_backoff.with_failure(monotonic())
        else:
            backoff = self.retry_backoff = self.retry_backoff.with_failure(monotonic())
        pause = backoff.pause if self.started_with is self.config else 0.0
        self.retry_timer = threading.Timer(pause, retry)
        self.retry_timer.daemon = True
        self.retry_timer.start()

    def end_wait(self) -> None:
        """End the pause before a retry."""
        if self.retry_timer is not None:
            self.retry_timer.cancel()
        self.retry_timer = None


class CaptureWorkers:
    """The capture units of one agent.

    `ledger` receives their events, `figures` what their processes report.
    """

    def __init__(
        self,
        config: Config,
        ledger: UnitLedger,
        figures: ReportedFigures,
        on_refusal: OnRefusal | None = None,
        retry_backoff: Backoff = REFUSAL_RETRY_BACKOFF,
    ) -> None:
        """`on_refusal(unit, error)` is called when a process ends because a person must act."""
        self._retry_backoff = retry_backoff
        self._on_refusal = on_refusal
        self._config = config
        self._ledger, self._figures = ledger, figures
        self._mutex = threading.Lock()
        self._units: dict[str, _CaptureUnit] = {}
        self._oldest: OldestAgents | None = None

    def use_config(self, config: Config) -> None:
        """Run the units that are prepared from now on under this configuration.

        A running unit keeps its own, unless only secrets of its source differ: then its next process uses
        them, at once if the unit waits for a person. Its process uses the passwords of Kafka at once.
        """
        with self._mutex:
            self._config, units = config, list(self._units.values())
        digests = compute_part_digests(config)
        configs = {id(unit.config): unit.config for unit in units}
        earlier = {number: compute_part_digests(each) for number, each in configs.items()}
        same = [unit for unit in units if earlier[id(unit.config)][unit.part] == digests.get(unit.part)]
        with self._mutex:
            for unit in same:
                unit.use_config(config)
            waiting = [unit for unit in same if unit.retry_timer is not None]
        for unit in waiting:
            self._look_again(unit)
        self._send_all(handed.encode_config(config).decode())

    def _send_all(self, line: str) -> None:
        """Send a line to every capture process."""
        with self._mutex:
            processes = [unit.process for unit in self._units.values() if unit.process is not None]
        for process in processes:
            process.send_line(line)

    def use_oldest_agents(self, oldest: OldestAgents) -> None:
        """Send which agents are the oldest to all capture processes, also to those that start later."""
        with self._mutex:
            self._oldest = oldest
        self._send_all(_encode_command(CaptureCommand(oldest_agents=oldest)))

    def prepare(self, unit: str, assignment: int, mark: UnitProgress | None) -> None:
        """Start the unit's process. Raises ValueError for a source that is not configured here."""
        named = parse_unit_name(unit)
        with self._mutex:
            config = self._config
            if not isinstance(named, CaptureName) or named.source not in config.sources:
                raise ValueError(f"{unit}: this agent's configuration has no such source")
            source = named.source
            if config.sources[source].events != "rowlock":
                raise ValueError(f"{unit}: by this agent's configuration Debezium captures {source}")
            new = _CaptureUnit(unit, assignment, source, config, mark=mark, retry_backoff=self._retry_backoff)
            self._units[unit] = new
        self._start_process(new)

    def _start_process(self, unit: _CaptureUnit) -> None:
        self._figures.begin_capture(unit.source)
        unit.start_process(
            lambda line: self._handle_line(unit, line), lambda code: self._handle_exit(unit, code)
        )

    def start(self, unit: str, assignment: int) -> None:
        found = self._find_unit(unit, assignment)
        if found is not None and found.process is not None:
            found.started = True
            self._let_begin(found.process)

    def _let_begin(self, process: ChildProcess) -> None:
        """Let a prepared process begin."""
        with self._mutex:
            command = CaptureCommand(start=True, oldest_agents=self._oldest)
        process.send_line(_encode_command(command))

    def remove(self, unit: str, assignment: int) -> None:
        found = self._find_unit(unit, assignment)
        with self._mutex:
            if found is None or found.stopped:
                return
            found.stopped, is_ended = True, found.finished or found.retry_timer is not None
            if found.retry_timer is not None:
                found.retry_timer.cancel()
        if is_ended:
            self._figures.end_capture(found.source)
            self._ledger.report_event(found.name, WorkerEnded(found.assignment, found.mark))
        elif found.process is not None:
            _end_process(found.process)

    def measure_effort(self, unit: str, assignment: int) -> float:
        """Return a number that grows as long as the unit's process works."""
        found = self._find_unit(unit, assignment)
        return found.process.measure_cpu_s() if found is not None and found.process is not None else 0.0

    def close(self) -> None:
        """End all processes, in the end by force."""
        with self._mutex:
            units = list(self._units.values())
        for unit in units:
            self.remove(unit.name, unit.assignment)
        last = monotonic() + scale_timeout(CAPTURE_STOP_GRACE_S)
        for unit in units:
            if unit.process is not None and not unit.process.wait_for_exit(max(0.1, last - monotonic())):
                unit.process.kill()
                unit.process.wait_for_exit(scale_timeout(CAPTURE_STOP_GRACE_S))

    def _find_unit(self, unit: str, assignment: int) -> _CaptureUnit | None:
        with self._mutex:
            found = self._units.get(unit)
        return found if found is not None and found.assignment == assignment else None

    # lines of the process

    def _handle_line(self, unit: _CaptureUnit, line: dict[str, Any]) -> None:
        match line.get("kind"):
            case "prepared":
                self._ledger.report_event(unit.name, Prepared(unit.assignment))
            case "captured":
                self._figures.record_captured(unit.source, line)
                self._ledger.report_event(unit.name, unit.record_progress(line))
            case "trouble":
                unit.record_refusal(None)
                if line.get("delivery_failed"):
                    self._figures.count_delivery_failure(unit.source)
                self._report_trouble(unit, f"{TRIES_AGAIN}{line.get('error')}")
            case "failed":
                unit.record_failure(str(line.get("error")), login_refused=bool(line.get("login_refused")))

    def _handle_exit(self, unit: _CaptureUnit, code: int) -> None:
        self._figures.end_capture(unit.source)
        only = unit.config.sources[unit.source].snapshot == "only"
        if code == 0 and only and not unit.stopped:
            _LOG.info("snapshot completed", source=unit.source)
            unit.finish_snapshot()
            self._figures.finish_snapshot(unit.source)
            return
        error = unit.error
        if error is None and not unit.stopped:
            error = f"the capture process of {unit.source} ended with code {code}"
        if code == CAPTURE_REFUSED_CODE and self._wait_for_person(unit, str(error)):
            return
        _LOG.info("capture ended", source=unit.source, code=code, error=error and str(decode_problem(error)))
        self._ledger.report_event(unit.name, WorkerEnded(unit.assignment, unit.mark, error))

    # waiting for a person

    def _wait_for_person(self, unit: _CaptureUnit, error: str) -> bool:
        """Keep a unit that has begun, and retry it later. False: it ends."""
        with self._mutex:
            if unit.stopped:
                return False
            waits = unit.started
            if waits:
                unit.schedule_retry(lambda: self._look_again(unit))
        if unit.record_refusal(error) and self._on_refusal is not None:
            self._on_refusal(unit.name, error)
        if waits:
            self._report_trouble(unit, error)
        return waits

    def _look_again(self, unit: _CaptureUnit) -> None:
        """Start a new process, once for each pause."""
        with self._mutex:
            if unit.stopped or unit.retry_timer is None:
                return
            unit.end_wait()
        try:
            self._start_process(unit)
        except OSError as error:
            why = encode_problem(Problem(f"capture cannot be started: {error}"))
            self._ledger.report_event(unit.name, WorkerEnded(unit.assignment, unit.mark, why))
            return
        self._go_on(unit)

    def _go_on(self, unit: _CaptureUnit) -> None:
        """Let the new process begin, and end it if the unit was stopped meanwhile, because `remove` did
        not see this process.
        """
        if unit.process is None:
            return
        self._let_begin(unit.process)
        if unit.stopped:
            _end_process(unit.process)

    def _report_trouble(self, unit: _CaptureUnit, error: str) -> None:
        self._ledger.report_event(
            unit.name, UnitProgressed(unit.assignment, unit.mark or UnitProgress(0, 0), 0, error)
        )


def _encode_command(command: CaptureCommand) -> str:
    return msgspec.json.encode(command).decode()


def _end_process(process: ChildProcess) -> None:
    """Ask the process to end, and kill it if it does not end in time."""
    process.terminate()

    def kill_late_process() -> None:
        if not process.wait_for_exit(scale_timeout(CAPTURE_STOP_GRACE_S)):
            _LOG.warning("capture process killed", child=process.name)
            process.kill()

    threading.Thread(target=kill_late_process, name=f"end {process.name}", daemon=True).start()
