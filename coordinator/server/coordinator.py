"""A coordinator process: candidate for ever, owner while elected.

```
 agents ──gRPC──▶ HeartbeatServer ──▶ AgentMachine (one a stream) ──Mail──▶ OwnerMachine ──effects──▶ push, append, fence
                                        batch system, pollers                 ▲ Elected, Persisted, Lost: ControlLog
                                                                              ▲ ticks, catalogue, fences done: background
                                                                              ▲ commands and views: REST, through `Control`
```
A coordinator that is fenced or steps down ends its term inside the process: streams dropped, state thrown away, candidate
again. It does not exit, because nothing of a term outlives it here (the owner's state is one object) and the listening
sockets, REST and the reader of the control topic go on serving: whoever asks is told at once who leads.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import structlog

from coordinator.batch import BatchSystem, MailboxFullError, SendError
from coordinator.control.codec import Candidate, Change
from coordinator.control.events import Heard, LogEvent, WriteConfirmed
from coordinator.control.kafka_log import ControlLog
from coordinator.core.messages import Down, Up
from coordinator.core.owner.state import Catalogue, Command
from coordinator.server.background import CataloguePoller, FencePool, Ticker
from coordinator.server.batch_handler import AgentMachine, BatchHandler
from coordinator.server.config import ServerConfig
from coordinator.server.operators.api import LeaderView, View
from coordinator.server.operators.journal import EventRow
from coordinator.server.owner_machine import OwnerMachine
from coordinator.server.requests import (
    CatalogueRead,
    CommandAsked,
    FenceDone,
    Joined,
    Left,
    PendingAnswer,
    TickDue,
    ViewAsked,
)
from coordinator.transport.events import Arrived, Closed, LeaderInfo, Opened, TransportEvent
from coordinator.transport.server import HeartbeatServer
from schemas.config.model import KafkaConfig

log = structlog.get_logger("coordinator")


class Coordinator:
    """Implements `server.control.Control`. `catalogue` is asked about once a second while this leads, in its own thread.

    `fence(unit, uid, epoch)` makes the target refuse every lower epoch of the unit: it blocks, and raises if it could not; it
    is called from several threads.
    """

    def __init__(
        self,
        config: ServerConfig,
        kafka: KafkaConfig,
        catalogue: Callable[[], Catalogue],
        fence: Callable[[str, str, int], None],
    ) -> None:
        self._config, self._kafka = config, kafka
        self._candidate = Candidate(config.name, config.listen, config.rest)
        self._counts: Counter[str] = Counter()
        self._streams: dict[int, AgentMachine] = {}
        self._view_lock = threading.Lock()
        self._viewed: tuple[float, View] | None = None
        self._closed = False
        self._machine = OwnerMachine(lambda: self._candidate, config.owner, self)
        self._system: BatchSystem[AgentMachine, Up] = BatchSystem(
            self._machine, lambda _: BatchHandler(self._tell), config.batch
        )
        self._transport = HeartbeatServer(
            config.listen,
            self._heard,
            security=config.security,
            name=config.name,
            system=kafka.prefix,
            token=config.token,
            streams=config.streams,
        )
        self._log: ControlLog | None = None
        self._ticker = Ticker(config.tick, lambda: self._tell(TickDue()))
        self._catalogue = CataloguePoller(
            catalogue, lambda rev, found: self._tell(CatalogueRead(rev, found)), config.catalogue_every
        )
        self._fences = FencePool(
            fence, lambda rev, unit, epoch: self._tell(FenceDone(rev, unit, epoch)), config.fences
        )

    # life

    def start(self, rest: str | None = None) -> int:
        """Listen, and follow the control topic; returns the port for agents. `rest`: its "host:port" if only known now.

        Raises OSError when the address cannot be had, ControlTopicError when the control topic cannot serve.
        """
        port = self._transport.start()
        host = self._config.advertise or self._config.listen.rpartition(":")[0]
        address = f"{host}:{port}"
        self._candidate = Candidate(self._config.name, address, self._config.rest if rest is None else rest)
        self._system.start()
        for part in (self._ticker, self._catalogue, self._fences):
            part.start()
        self._log = ControlLog(self._kafka, self._candidate, self._logged, self._config.control)
        try:
            self._log.start()
        except BaseException:
            self.close()
            raise
        log.info("coordinator listens", name=self._config.name, address=address)
        return port

    def run(self, stop: threading.Event) -> int:
        """Serve until `stop`, then close. Returns 0; 2 after an internal error."""
        while not stop.wait(0.2):
            if self._system.error is not None:
                break
        try:
            self.close()
        except Exception:
            log.exception("coordinator ends after an internal error")
            return 2
        return 0

    def close(self) -> None:
        """Resign, so that another takes over at once; end streams and threads. Raises an error that ended the system."""
        if self._closed:
            return
        self._closed = True
        self._ticker.close()
        self._catalogue.close()
        if self._log is not None:
            self._log.close()
        self._transport.close()
        self._fences.close()
        self._system.close()

    # Control

    def leader(self) -> LeaderView | None:
        return self._machine.leader_now(time.monotonic())

    def view(self, timeout: float = 5.0) -> View:
        with self._view_lock:
            now = time.monotonic()
            viewed = self._viewed
            if viewed is None or now >= viewed[0]:
                asked: PendingAnswer[View] = PendingAnswer()
                self._tell(ViewAsked(asked))
                view = asked.wait(timeout)
                # a large view keeps the owner busy: never for more than a fifth of its time
                good_for = max(self._config.view_for, 4 * self._machine.view_took)
                viewed = self._viewed = (time.monotonic() + good_for, view)
            return viewed[1]

    def events(self, after: int, most: int) -> tuple[EventRow, ...]:
        return self._machine.journal.after(after, most)

    def command(self, command: Command, timeout: float = 5.0, *, by: str = "") -> None:
        answer: PendingAnswer[None] = PendingAnswer()
        self._tell(CommandAsked(command, answer, by))
        try:
            answer.wait(timeout)
        finally:
            self._viewed = None  # whoever gave it wants to see what came of it

    # what comes from agents

    def _tell(self, message: object) -> None:
        self._system.router.send_control(message)

    def _logged(self, event: LogEvent) -> None:
        if isinstance(event, Heard):
            self._machine.heard(event)
            return
        if isinstance(event, WriteConfirmed):
            self._machine.confirmed(event)
        self._tell(event)

    def _heard(self, event: TransportEvent) -> None:
        """From the streams' threads."""
        match event:
            case Opened(agent, stream):
                machine = AgentMachine(agent, stream, self._config.outbox)
                self._streams[stream] = machine
                self._system.router.register(stream, lambda: machine)
                self._tell(Joined(machine))
            case Arrived(_, stream, message):
                self._arrived(stream, message)
            case Closed(_, stream, why):
                gone = self._streams.pop(stream, None)
                self._system.router.close(stream)
                if gone is not None:
                    self._tell(Left(gone, why))

    def _arrived(self, stream: int, message: Up) -> None:
        try:
            self._system.router.send(stream, message)
        except MailboxFullError:
            self._counts["agents.mailbox full"] += 1  # lost; the next heartbeat says it again
        except SendError:
            self._counts["agents.no mailbox"] += 1

    # Outside: what the owner's machine does

    def push(self, agent: str, messages: list[Down]) -> int:
        return self._transport.push(agent, messages)

    def append(self, rev: int, token: int, changes: tuple[Change, ...]) -> None:
        if self._log is not None:
            self._log.append(rev, token, changes)

    def resign(self, why: str) -> None:
        if self._log is not None:
            self._log.resign(why)

    def fence(self, rev: int, unit: str, uid: str, epoch: int) -> None:
        self._fences.ask(rev, unit, uid, epoch)

    def set_leader(self, leader: LeaderInfo) -> None:
        self._transport.set_leader(leader)

    def leading(self, rev: int) -> None:
        self._catalogue.lead(rev)

    def ticked(self, took: float) -> None:
        self._ticker.done(took)

    def counters(self) -> dict[str, int]:
        """Return what a person looks at when something is slow or lost; names are stable."""
        return {
            **self._counts,
            **{f"transport.{what}": count for what, count in self._transport.counters().items()},
            **(self._log.counters() if self._log is not None else {}),
            "owner.mailbox": len(self._system.router.control),
            "owner.tick_us": int(self._ticker.last * 1e6),
            "fences.waiting": len(self._fences),
            "fences.failed": self._fences.failed,
            "catalogue.errors": self._catalogue.errors,
        }
