"""Capture units of an agent: each is a process `producer.main --wait`, started when the unit is opened.

Opened, the process has loaded everything and touches nothing; a line on its stdin lets it begin. It says how far it is, and
why it ends. One that ends by itself has ended the unit; the coordinator decides what becomes of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import structlog

from coordinator.core.agent_unit import Ended, Progressed, Ready, WorkerEvent
from coordinator.core.messages import Mark
from coordinator.core.progress import forward
from rowlock.processes import ChildProcess, child_command
from rowlock.relay import OnStatus
from schemas.config import Config

_LOG = structlog.get_logger()

GRACE_S = 15.0
"""How long a capture process may take to have everything acknowledged when it is stopped."""


REFUSED = 2
"""Exit code of a process that needs a person."""
OnRefusal = Callable[[str, str], None]


class Says(Protocol):
    """Who is told what happens to units."""

    def say(self, unit: str, event: WorkerEvent) -> None: ...


@dataclass(slots=True)
class _Unit:
    """`finished`: its snapshot was all there was to do; it is kept as a unit that has nothing to do."""

    name: str
    epoch: int
    source: str
    process: ChildProcess | None = None
    mark: Mark | None = None
    error: str | None = None
    stopped: bool = False
    finished: bool = False
    events: int = 0
    counted_at: float = field(default_factory=monotonic)


class CaptureWorkers:
    """The capture units of one agent; `ledger` is told what happens to them."""

    def __init__(
        self,
        config: Config,
        ledger: Says,
        on_status: OnStatus | None = None,
        on_refusal: OnRefusal | None = None,
    ) -> None:
        """`on_refusal(unit, error)`: called when a process ends because a person must act."""
        self._on_refusal = on_refusal
        self._config = config
        self._ledger = ledger
        self._on_status = on_status
        self._mutex = threading.Lock()
        self._units: dict[str, _Unit] = {}

    def open(self, unit: str, epoch: int, mark: Mark | None) -> None:
        """Start the process. Raises ValueError for a source that is not configured here."""
        source = unit.partition("/")[2]
        if source not in self._config.sources:
            raise ValueError(f"{unit}: this agent's configuration has no source {source}")
        if self._config.sources[source].events != "rowlock":
            raise ValueError(f"{unit}: by this agent's configuration Debezium captures {source}")
        new = _Unit(unit, epoch, source, mark=mark)
        with self._mutex:
            self._units[unit] = new
        command = child_command(
            "producer.main", self._config.path, "--source", source, "--wait", "--gen-at-least", str(epoch)
        )
        name = f"capture {source}"
        new.process = ChildProcess(
            name, command, lambda line: self._said(new, line), lambda code: self._exited(new, code)
        )

    def start(self, unit: str, epoch: int) -> None:
        found = self._of(unit, epoch)
        if found is not None and found.process is not None:
            found.process.send("start")

    def stop(self, unit: str, epoch: int) -> None:
        found = self._of(unit, epoch)
        if found is None or found.stopped:
            return
        found.stopped = True
        if found.finished:
            self._ledger.say(found.name, Ended(found.epoch, found.mark))
        elif found.process is not None:
            _end(found.process)

    def close(self) -> None:
        """End all processes, by force in the end."""
        with self._mutex:
            units = list(self._units.values())
        for unit in units:
            self.stop(unit.name, unit.epoch)
        last = monotonic() + GRACE_S
        for unit in units:
            if unit.process is not None and not unit.process.wait(max(0.1, last - monotonic())):
                unit.process.kill()
                unit.process.wait(GRACE_S)

    def _of(self, unit: str, epoch: int) -> _Unit | None:
        with self._mutex:
            found = self._units.get(unit)
        return found if found is not None and found.epoch == epoch else None

    # what the process says

    def _said(self, unit: _Unit, line: dict[str, Any]) -> None:
        match line.get("kind"):
            case "prepared":
                self._ledger.say(unit.name, Ready(unit.epoch))
            case "captured":
                self._progressed(unit, line)
            case "failed":
                unit.error = str(line.get("error"))
        if self._on_status is not None:
            self._on_status(f"capture {unit.source}", line)

    def _progressed(self, unit: _Unit, line: dict[str, Any]) -> None:
        epoch, file, pos, row = line["position"]
        at, events = line["commit_ts_ms"], line["events"]
        # A log counts commits in seconds, an idle source's clock in ms: a transaction can be older than the mark before it.
        reported = Mark(at, at, (epoch, file, pos, row))
        unit.mark = mark = forward(unit.mark, reported) or reported
        now = monotonic()
        rate = round(max(0, events - unit.events) / max(0.1, now - unit.counted_at))
        unit.events, unit.counted_at = events, now
        self._ledger.say(unit.name, Progressed(unit.epoch, mark, rate))

    def _exited(self, unit: _Unit, code: int) -> None:
        only = self._config.sources[unit.source].snapshot == "only"
        if code == 0 and only and not unit.stopped:
            _LOG.info("snapshot complete", source=unit.source)
            unit.finished = True
            return
        error = unit.error
        if error is None and not unit.stopped:
            error = f"the capture process of {unit.source} ended with code {code}"
        _LOG.info("capture ended", source=unit.source, code=code, error=error)
        if code == REFUSED and not unit.stopped and self._on_refusal is not None:
            self._on_refusal(unit.name, str(error))
        self._ledger.say(unit.name, Ended(unit.epoch, unit.mark, error))


def _end(process: ChildProcess) -> None:
    """Ask the process to end, and end it when it does not in time."""
    process.terminate()

    def insist() -> None:
        if not process.wait(GRACE_S):
            _LOG.warning("capture process does not end, it is killed", child=process.name)
            process.kill()

    threading.Thread(target=insist, name=f"end {process.name}", daemon=True).start()
