"""A coordinator process: always a candidate, and the leader while elected.

```
 agents ──gRPC──▶ HeartbeatServer ──▶ AgentMachine (per stream) ──▶ LeaderMachine ──▶ effects:
                                      batch system, pollers            ▲             push, append, fence
                                               ControlLog ─────────────┤ Elected, RecordsCommitted, Lost
                                               background ─────────────┤ ticks, inventory, fences done
                                               REST ───────────────────┘ commands, views
```
A coordinator that is fenced or steps down ends its term inside the process: it drops the streams,
discards the state and is a candidate again. It does not exit, because no part of a term outlives it (the
leader's state is one object), and the listening sockets, REST and the reader of the control topic go on
serving: each caller learns at once which coordinator leads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from coordinator.batch import BatchSystem
from coordinator.control.codec import Candidate
from coordinator.control.events import ControlLogEvent, ControlTopicLost, Elected, Heard, WriteConfirmed
from coordinator.control.kafka_log import ControlLog
from coordinator.control.topic import ControlTopicError
from coordinator.core.leader.state import Inventory, LeaderCommand, Reload
from coordinator.core.messages import Up
from coordinator.core.records import ConfigRecord
from coordinator.server.agent_machine import AgentMachine
from coordinator.server.agent_streams import AgentStreams
from coordinator.server.background import FencePool, InventoryPoller, Ticker
from coordinator.server.batch_handler import BatchHandler
from coordinator.server.config import ServerConfig
from coordinator.server.leader_machine import LeaderMachine
from coordinator.server.operators.api import CommandRefusedError, LeaderView, NotLeaderError, View
from coordinator.server.operators.configuration import (
    Configuration,
    ConfigurationRefusedError,
    FoundConfiguration,
)
from coordinator.server.operators.journal import EventRow
from coordinator.server.parts import CoordinatorParts
from coordinator.server.requests import (
    CommandRequested,
    FenceDone,
    InventoryRead,
    PendingAnswer,
    TickDue,
    ViewRequested,
)
from coordinator.transport.server import HeartbeatServer
from schemas.config.model import KafkaConfig
from schemas.problems import Problem

log = structlog.get_logger("coordinator")

RELOAD_ANSWER_TIMEOUT_S = 15.0
"""Seconds that a reload may take beyond the time in which agents have to answer."""


class Coordinator:
    """The coordinator of this process.

    `inventory` returns the inventory; it is called about once a second while this coordinator leads, in
    a thread of its own. `fence(unit, uid, assignment)` makes the target refuse every lower assignment of
    the unit: it blocks, raises if it fails, and is called from several threads. `configuration` is what
    inventory and fences follow; None: it cannot be reloaded.
    """

    def __init__(
        self,
        config: ServerConfig,
        kafka: KafkaConfig,
        inventory: Callable[[], Inventory],
        fence: Callable[[str, str, int], None],
        configuration: Configuration | None = None,
    ) -> None:
        self._config, self._kafka = config, kafka
        self._configuration, self._active_digest = configuration, ""
        self._reloading = threading.Lock()
        self._candidate = Candidate(config.name, config.listen, config.rest)
        self._view_lock = threading.Lock()
        self._viewed: tuple[float, View] | None = None
        self._closed = False
        self._lost_topic: Problem | None = None
        """Why this coordinator cannot go on; None: its control topic is there."""
        transport = HeartbeatServer(
            config.listen,
            lambda event: self._agents.on_transport_event(event),  # noqa: PLW0108  # they are created below
            security=config.security,
            name=config.name,
            system=kafka.prefix,
            token=config.token,
            streams=config.streams,
        )
        self._parts = CoordinatorParts(
            transport,
            Ticker(config.tick, lambda: self._send_to_leader(TickDue())),
            InventoryPoller(
                lambda: self._adopt_stored_config(inventory),
                lambda rev, found: self._send_to_leader(InventoryRead(rev, found)),
                config.inventory_every,
            ),
            FencePool(
                fence,
                lambda rev, unit, assignment: self._send_to_leader(FenceDone(rev, unit, assignment)),
                config.fences,
            ),
            lambda: {**self._agents.counts, "owner.mailbox": len(self._system.router.control)},
            lambda digest: configuration.adopt_config(digest) if configuration is not None else None,
        )
        self._machine = LeaderMachine(lambda: self._candidate, config.leader, self._parts)
        self._system: BatchSystem[AgentMachine, Up] = BatchSystem(
            self._machine, lambda _: BatchHandler(self._send_to_leader), config.batch
        )
        self._agents = AgentStreams(self._system, self._send_to_leader, config.outbox)

    # start and stop

    def start(self, rest: str | None = None) -> int:
        """Listen, follow the control topic, and return the port for agents. `rest`: the "host:port" of
        REST if it is only known now.

        Raises OSError if the address is not available, ControlTopicError if the control topic cannot be
        used.
        """
        port = self._parts.transport.start()
        host = self._config.advertise or self._config.listen.rpartition(":")[0]
        address = f"{host}:{port}"
        self._candidate = Candidate(self._config.name, address, self._config.rest if rest is None else rest)
        self._system.start()
        self._parts.start()
        control_log = ControlLog(self._kafka, self._candidate, self._on_log_event, self._config.control)
        try:
            self._parts.start_log(control_log)
        except BaseException:
            self.close()
            raise
        log.info("coordinator started", name=self._config.name, address=address)
        return port

    def run(self, stop: threading.Event) -> int:
        """Serve until `stop`, then close. Returns 0; 2 after an internal error.

        Raises ControlTopicError if the control topic is lost.
        """
        while not stop.wait(0.2):
            if self._system.error is not None or self._lost_topic is not None:
                break
        try:
            self.close()
        except Exception:
            log.exception("coordinator stopped by an internal error")
            return 2
        if self._lost_topic is not None:
            raise ControlTopicError.from_problem(self._lost_topic)
        return 0

    def close(self) -> None:
        """Resign, so that another coordinator becomes the leader at once, and end streams and threads.
        Raises the error that ended the system, if any.
        """
        if self._closed:
            return
        self._closed = True
        self._parts.close()
        self._system.close()

    # for operators, from any thread

    def get_leader(self) -> LeaderView | None:
        """Return the leader as far as it is known. Never waits."""
        leader = self._machine.leadership.find_leader(time.monotonic())
        return replace(leader, version=self._config.version) if leader is not None and leader.am_i else leader

    def get_view(self, timeout: float = 5.0) -> View:
        """Return the view, at most four times as old as building it took. Raises NoAnswerError."""
        with self._view_lock:
            now = time.monotonic()
            viewed = self._viewed
            if viewed is None or now >= viewed[0]:
                asked: PendingAnswer[View] = PendingAnswer()
                self._send_to_leader(ViewRequested(asked))
                view = asked.wait_for_value(timeout)
                # A large view keeps the leader busy: never for more than a fifth of its time. A small one is
                # not kept, because a unit that has progress by now must be in it (rowlock.inspect.status).
                viewed = self._viewed = (time.monotonic() + 4 * self._machine.view_took, view)
            return viewed[1]

    def list_restrictions(self) -> tuple[str, ...]:
        """Return for each unit that the leader leaves as it is why, and what to do. Never waits; empty if
        this coordinator does not lead.
        """
        return self._machine.list_restrictions()

    def list_events(self, after: int, most: int) -> tuple[EventRow, ...]:
        """Return the events after number `after`, oldest first, at most the newest `most`. Never waits."""
        return self._machine.journal.list_events_after(after, most)

    def count_events(self) -> Mapping[str, int]:
        """Return phrase → the number of its events since this process started. Never waits."""
        return self._machine.journal.count_events()

    def count_moves(self) -> Mapping[str, int]:
        """Return cause → how many units have come to another agent since this process started. Never
        waits.
        """
        return self._machine.journal.count_moves()

    def record_event(self, what: str, about: Mapping[str, object]) -> None:
        """Record an action that this coordinator has done for an operator."""
        leader = self.get_leader()
        self._machine.journal.record_event(
            leader.rev if leader is not None and leader.am_i else 0, what, about
        )

    def execute_command(self, command: LeaderCommand, timeout: float = 5.0, *, by: str = "") -> None:
        """Execute a command of operator `by`. Returns once it is accepted, and durable if it is to
        outlive this leader.

        `timeout` is in seconds. Raises CommandRefusedError, NotLeaderError, NoAnswerError.
        """
        answer: PendingAnswer[None] = PendingAnswer()
        self._send_to_leader(CommandRequested(command, answer, by))
        try:
            answer.wait_for_value(timeout)
        finally:
            self._viewed = None  # the operator wants to see the effect of the command

    def reload_config(self, *, dry_run: bool = False, by: str = "") -> FoundConfiguration:
        """Reload the configuration file, activate it if every agent's file holds the same, and return
        the changes.

        Raises CommandRefusedError, NotLeaderError, NoAnswerError. `dry_run`: only read the file and
        return the changes.
        """
        leader = self.get_leader()
        if leader is None or not leader.am_i:
            raise NotLeaderError(leader)
        if self._configuration is None:
            raise CommandRefusedError(Problem("this coordinator has no file to read", "restart it"))
        with self._reloading:  # one reload at a time: what was read is used before anything else is read
            try:
                found = self._configuration.read_checked_file()
            except ConfigurationRefusedError as refused:
                about = {"command": "reload", "by": by or "unknown", "why": str(refused)}
                if not dry_run:
                    self._machine.journal.record_event(leader.rev, "command refused", about)
                raise CommandRefusedError(*map(Problem, refused.lines)) from refused
            if not dry_run:
                command = Reload(found.digest, found.parts, found.changed)
                self.execute_command(
                    command, self._config.leader.reload_timeout + RELOAD_ANSWER_TIMEOUT_S, by=by
                )
        return found

    def _adopt_stored_config(self, inventory: Callable[[], Inventory]) -> Inventory:
        """Return the inventory. Before the first one of a term, load the configuration that an earlier
        leader activated, if the file holds it.
        """
        digest, self._active_digest = self._active_digest, ""
        if digest and self._configuration is not None:
            self._configuration.catch_up(digest)
        return inventory()

    # incoming events

    def _send_to_leader(self, message: object) -> None:
        self._system.router.send_control(message)

    def _on_log_event(self, event: ControlLogEvent) -> None:
        if isinstance(event, Heard):
            self._machine.leadership.record_sign_of_life(event)
            return
        if isinstance(event, ControlTopicLost):
            self._lost_topic = event.problem
            return
        if isinstance(event, Elected):
            record = event.records.get("configuration")
            self._active_digest = record.digest if isinstance(record, ConfigRecord) else ""
        if isinstance(event, WriteConfirmed):
            self._machine.leadership.record_confirmation(event)
        self._send_to_leader(event)
