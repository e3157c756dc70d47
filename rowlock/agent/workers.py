"""The processes in which an agent's units run: one per capture unit, and one with one Spark session for
all apply units.

coordinator.agent.shell calls `LocalWorkers` (its protocol `Workers`); rowlock.agent.capture and
rowlock.agent.apply communicate with the processes.

Progress of units in preparation is reported as long as their processes work. On a busy machine a process
takes many times as long to start, and giving it up would only start all that work again. A process that
hangs uses no processor time; one that waits for its turn does, if slowly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rowlock.agent.apply import ApplyWorker
from rowlock.agent.capture import CaptureWorkers, OnRefusal
from rowlock.agent.reported import ReportedFigures
from rowlock.agent.unit_ledger import OnEvent, UnitLedger
from schemas.config.model import Config
from schemas.io.kafka_passwords import use_kafka_passwords
from schemas.units import (
    ApplyName,
    CaptureName,
    OldestAgents,
    PrepareProgress,
    UnitProgress,
    WorkerEnded,
    parse_unit_name,
)

EVERY_S = 2.0
LEAST = 0.01
"""The growth of an effort (mostly processor seconds) that counts as progress."""


class PreparationMonitor:
    """Reports progress of units in preparation. `effort(unit, assignment)` grows while the preparation
    makes progress.
    """

    def __init__(
        self, ledger: UnitLedger, effort: Callable[[str, int], float], every_s: float = EVERY_S
    ) -> None:
        self._ledger, self._effort, self._every_s = ledger, effort, every_s
        self._known: dict[tuple[str, int], float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()

    def report_progress(self) -> None:
        """Report each unit in preparation that has made progress since the last call."""
        now = {one: self._effort(*one) for one in self._ledger.list_preparing()}
        for (unit, assignment), effort in now.items():
            if effort > self._known.get((unit, assignment), effort) + LEAST:
                self._ledger.report_event(unit, PrepareProgress(assignment))
        self._known = now

    def _run_loop(self) -> None:
        while not self._stop.wait(self._every_s):
            self.report_progress()


class LocalWorkers:
    """All units of the agent on this machine. Apply units need Java. After `close` no process is left."""

    def __init__(self, config: Config, on_refusal: OnRefusal | None = None) -> None:
        """`on_refusal(unit, error)` is called, from any thread, when a unit ends because a person must
        act.
        """
        self._ledger = UnitLedger()
        self.figures = ReportedFigures()
        """What the processes report."""
        self._capture = CaptureWorkers(config, self._ledger, self.figures, on_refusal)
        self._apply = ApplyWorker(config, self._ledger, self.figures)
        self._pulse = PreparationMonitor(
            self._ledger, lambda unit, assignment: self._find_worker(unit).measure_effort(unit, assignment)
        )

    def listen(self, on_event: OnEvent) -> None:
        """Pass all events to `on_event`, from any thread. Starts Spark, which takes seconds, if there
        are pipelines.
        """
        self._ledger.listen(on_event)
        self._apply.warm_up()
        self._pulse.start()

    def use_config(self, config: Config) -> None:
        """Run the units that are prepared from now on under this configuration; running units keep theirs,
        but for the passwords of Kafka.
        """
        use_kafka_passwords(config)
        self._capture.use_config(config)
        self._apply.use_config(config)

    def use_oldest_agents(self, oldest: OldestAgents) -> None:
        """Send which agents are the oldest to the capture processes."""
        self._capture.use_oldest_agents(oldest)

    def prepare(self, unit: str, assignment: int, mark: UnitProgress | None) -> None:
        worker = self._find_worker(unit)
        self._ledger.register_unit(unit, assignment)
        worker.prepare(unit, assignment, mark)

    def start(self, unit: str, assignment: int, mark: UnitProgress | None) -> None:
        """Start the unit. `mark` is not used: the target and the topics determine where to continue."""
        del mark
        if self._ledger.has_assignment(unit, assignment):
            self._find_worker(unit).start(unit, assignment)

    def remove(self, unit: str, assignment: int) -> None:
        if self._ledger.has_assignment(unit, assignment):
            self._find_worker(unit).remove(unit, assignment)

    def close(self) -> None:
        """Stop everything. When this returns no process runs any more, and every unit has ended."""
        self._pulse.close()
        both = (self._capture, self._apply)
        with ThreadPoolExecutor(len(both), "close workers") as pool:
            for future in [pool.submit(worker.close) for worker in both]:
                future.result()
        for unit, assignment in self._ledger.list_units():
            self._ledger.report_event(unit, WorkerEnded(assignment, None, "closed with the agent"))

    def _find_worker(self, unit: str) -> CaptureWorkers | ApplyWorker:
        """Return the kind of worker for the unit. Raises ValueError for a unit of neither kind."""
        named = parse_unit_name(unit)
        if isinstance(named, CaptureName):
            return self._capture
        if isinstance(named, ApplyName):
            return self._apply
        raise ValueError(f"{unit}: units are capture/<source> and apply/<pipeline>/<topic>")
