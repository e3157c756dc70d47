"""Capture units of an agent: each is a process `producer.main --wait`, started when the unit is to be prepared.

Prepared, the process has loaded everything and touches nothing; a line on its stdin lets it begin. It says how far it is, what
keeps it from going on, and why it ends. One that ends by itself has ended the unit; the coordinator decides what becomes of it. Only
a unit that has begun and whose process says that a person must act stays here and waits: nobody else could do better with it. It looks
again, with a new process, later each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import structlog

from coordinator.core.progress import forward
from deploy.embedded.patience import patient
from rowlock.processes.child_process import ChildProcess, child_command
from schemas.backoff import Backoff
from schemas.config.model import Config
from schemas.findings import TRIES_AGAIN
from schemas.units import Ended, Mark, Prepared, Progressed, WorkerEvent

_LOG = structlog.get_logger()

GRACE_S = 15.0
"""How long a capture process may take to have everything acknowledged when it is stopped, on a machine with time to spare."""


REFUSED = 2
"""Exit code of a process that needs a person."""
LOOKS = Backoff(first=15.0, longest=120.0)
"""When it is looked again whether the person has acted."""
OnRefusal = Callable[[str, str], None]


class Says(Protocol):
    """Receives the events of units."""

    def say(self, unit: str, event: WorkerEvent) -> None: ...


@dataclass(slots=True)
class _Unit:
    """`finished`: its snapshot was all there was to do; it is kept as a unit that has nothing to do.

    `config`: it was prepared under, and goes on under. `trouble`: what it cannot go on for just now. `waits`: for a person, until `again` begins a new process; `looks`: how often it has.
    """

    name: str
    assignment: int
    source: str
    config: Config
    process: ChildProcess | None = None
    mark: Mark | None = None
    error: str | None = None
    trouble: str | None = None
    started: bool = False
    stopped: bool = False
    finished: bool = False
    waits: bool = False
    again: threading.Timer | None = None
    looks: Backoff = LOOKS
    events: int = 0
    counted_at: float = field(default_factory=monotonic)


class CaptureWorkers:
    """The capture units of one agent; `ledger` is told what happens to them. `config`: what units that are prepared now run under."""

    def __init__(
        self,
        config: Config,
        ledger: Says,
        on_refusal: OnRefusal | None = None,
        looks: Backoff = LOOKS,
    ) -> None:
        """`on_refusal(unit, error)`: called when a process ends because a person must act."""
        self._looks = looks
        self._on_refusal = on_refusal
        self.config = config
        self._ledger = ledger
        self._mutex = threading.Lock()
        self._units: dict[str, _Unit] = {}

    def prepare(self, unit: str, assignment: int, mark: Mark | None) -> None:
        """Start the process. Raises ValueError for a source that is not configured here."""
        source, config = unit.partition("/")[2], self.config
        if source not in config.sources:
            raise ValueError(f"{unit}: this agent's configuration has no source {source}")
        if config.sources[source].events != "rowlock":
            raise ValueError(f"{unit}: by this agent's configuration Debezium captures {source}")
        new = _Unit(unit, assignment, source, config, mark=mark, looks=self._looks)
        with self._mutex:
            self._units[unit] = new
        self._begin(new)

    def _begin(self, unit: _Unit) -> None:
        command = child_command(
            "producer.main",
            unit.config.path,
            "--source",
            unit.source,
            "--wait",
            "--gen-at-least",
            str(unit.assignment),
        )
        unit.error = None
        unit.process = ChildProcess(
            f"capture {unit.source}",
            command,
            lambda line: self._said(unit, line),
            lambda code: self._exited(unit, code),
            unit.config,
        )

    def start(self, unit: str, assignment: int) -> None:
        found = self._of(unit, assignment)
        if found is not None and found.process is not None:
            found.started = True
            found.process.send("start")

    def remove(self, unit: str, assignment: int) -> None:
        found = self._of(unit, assignment)
        with self._mutex:
            if found is None or found.stopped:
                return
            found.stopped, nobody_runs = True, found.finished or found.waits
            if found.again is not None:
                found.again.cancel()
        if nobody_runs:
            self._ledger.say(found.name, Ended(found.assignment, found.mark))
        elif found.process is not None:
            _end(found.process)

    def effort(self, unit: str, assignment: int) -> float:
        """Return a number that grows as long as the unit's process does something."""
        found = self._of(unit, assignment)
        return found.process.cpu_s() if found is not None and found.process is not None else 0.0

    def close(self) -> None:
        """End all processes, by force in the end."""
        with self._mutex:
            units = list(self._units.values())
        for unit in units:
            self.remove(unit.name, unit.assignment)
        last = monotonic() + patient(GRACE_S)
        for unit in units:
            if unit.process is not None and not unit.process.wait(max(0.1, last - monotonic())):
                unit.process.kill()
                unit.process.wait(patient(GRACE_S))

    def _of(self, unit: str, assignment: int) -> _Unit | None:
        with self._mutex:
            found = self._units.get(unit)
        return found if found is not None and found.assignment == assignment else None

    # what the process says

    def _said(self, unit: _Unit, line: dict[str, Any]) -> None:
        match line.get("kind"):
            case "prepared":
                self._ledger.say(unit.name, Prepared(unit.assignment))
            case "captured":
                unit.trouble, unit.looks = None, self._looks
                self._progressed(unit, line)
            case "trouble":
                unit.trouble = f"{TRIES_AGAIN}{line.get('error')}"
                self._troubled(unit, unit.trouble)
            case "failed":
                unit.error = str(line.get("error"))

    def _progressed(self, unit: _Unit, line: dict[str, Any]) -> None:
        era, file, pos, row = line["position"]
        at, events = line["commit_ts_ms"], line["events"]
        # A log counts commits in seconds, an idle source's clock in ms: a transaction can be older than the mark before it.
        reported = Mark(at, at, (era, file, pos, row))
        unit.mark = mark = forward(unit.mark, reported) or reported
        now = monotonic()
        rate = round(max(0, events - unit.events) / max(0.1, now - unit.counted_at))
        unit.events, unit.counted_at = events, now
        self._ledger.say(unit.name, Progressed(unit.assignment, mark, rate))

    def _exited(self, unit: _Unit, code: int) -> None:
        only = unit.config.sources[unit.source].snapshot == "only"
        if code == 0 and only and not unit.stopped:
            _LOG.info("snapshot complete", source=unit.source)
            unit.finished = True
            return
        error = unit.error
        if error is None and not unit.stopped:
            error = f"the capture process of {unit.source} ended with code {code}"
        _LOG.info("capture ended", source=unit.source, code=code, error=error)
        if code == REFUSED and self._waits(unit, str(error)):
            return
        self._ledger.say(unit.name, Ended(unit.assignment, unit.mark, error))

    # waiting for a person

    def _waits(self, unit: _Unit, error: str) -> bool:
        """Keep a unit that has begun, and look again later. False: it ends."""
        with self._mutex:
            if unit.stopped:
                return False
            unit.waits = unit.started
            if unit.waits:
                unit.looks = unit.looks.failed(monotonic())
                unit.again = threading.Timer(unit.looks.pause, self._look_again, (unit,))
                unit.again.daemon = True
                unit.again.start()
        if self._on_refusal is not None and unit.trouble != error:
            self._on_refusal(unit.name, error)
        unit.trouble = error
        if unit.waits:
            self._troubled(unit, error)
        return unit.waits

    def _look_again(self, unit: _Unit) -> None:
        with self._mutex:
            if unit.stopped:
                return
            unit.waits, unit.again = False, None
        try:
            self._begin(unit)
        except OSError as error:
            self._ledger.say(
                unit.name, Ended(unit.assignment, unit.mark, f"capture cannot be started: {error}")
            )
            return
        self._go_on(unit)

    def _go_on(self, unit: _Unit) -> None:
        """Let the new process begin; end it where the unit was stopped meanwhile: who did that has not seen it."""
        if unit.process is None:
            return
        unit.process.send("start")
        if unit.stopped:
            _end(unit.process)

    def _troubled(self, unit: _Unit, error: str) -> None:
        self._ledger.say(unit.name, Progressed(unit.assignment, unit.mark or Mark(0, 0), 0, error))


def _end(process: ChildProcess) -> None:
    """Ask the process to end, and end it when it does not in time."""
    process.terminate()

    def insist() -> None:
        if not process.wait(patient(GRACE_S)):
            _LOG.warning("capture process does not end, it is killed", child=process.name)
            process.kill()

    threading.Thread(target=insist, name=f"end {process.name}", daemon=True).start()
