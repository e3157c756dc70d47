"""What a take-over costs the leader: Kafka transactions, time, and processor time of its threads
(docs/adr/0018).

The leader's machine on the batch system with the real core, agents of the real core in one thread beside it,
no gRPC. Half of the agents fall silent; what is measured begins with the first record that gives one of their
units to another, and ends when the last of them has been started there.

python -m bench.rounds [--units 2000] [--agents 20] [--kafka BOOTSTRAP | --embedded] [--agent-burst 20] (else:
a log in memory)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from bench.heartbeats import Simulated, agent_name, held, inventory, records
from coordinator.batch import BatchConfig, BatchSystem
from coordinator.control.codec import Candidate, RecordChange
from coordinator.control.events import ControlLogEvent, Elected, NewLeader, RecordsCommitted, WriteConfirmed
from coordinator.control.kafka_log import ControlLog
from coordinator.control.transactions import TermProducer
from coordinator.core import agent as core
from coordinator.core.agent_state import HeldUnits, ObeyedLeader
from coordinator.core.leader.state import LeaderConfig
from coordinator.core.messages import Down, Up
from coordinator.core.records import DurableRecord, UnitRecord
from coordinator.core.schedulers import MoveLimits
from coordinator.server.agent_machine import AgentMachine
from coordinator.server.background import Ticker
from coordinator.server.batch_handler import BatchHandler
from coordinator.server.leader_machine import LeaderMachine
from coordinator.server.requests import InventoryRead, StreamJoined, TickDue
from deploy.embedded.services import Kafka, combine_services
from schemas.config.model import KafkaConfig

#: Seconds that a transaction takes with a log in memory.
COMMIT_S = 0.005
ME = Candidate("bench", "127.0.0.1:1")


class Memory:
    """The control log's writer without Kafka: what came during a transaction goes into the next one."""

    def __init__(
        self, on_event: Callable[[ControlLogEvent], None], left: Mapping[str, DurableRecord]
    ) -> None:
        self._tell, self._left = on_event, left
        self._changed = threading.Condition()
        self._pending: list[int] = []
        self._closed = False
        self.transactions = 0
        self._thread = threading.Thread(target=self._run_thread, name="bench-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def append_changes(self, _rev: int, token: int, _changes: tuple[RecordChange, ...]) -> None:
        with self._changed:
            self._pending.append(token)
            self._changed.notify()

    def stop_applying(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(5)

    def _run_thread(self) -> None:
        self._tell(Elected(1, self._left))
        self._tell(NewLeader(1, ME))
        while True:
            with self._changed:
                if not self._pending and not self._closed:
                    self._changed.wait(0.8)
                tokens, self._pending = self._pending, []
            if self._closed:
                return
            time.sleep(COMMIT_S)
            self.transactions += 1
            self._tell(WriteConfirmed(1, time.monotonic()))
            for token in tokens:
                self._tell(RecordsCommitted(1, token))


class Committing:
    """Kafka's control log, with its transactions counted."""

    def __init__(
        self, bootstrap: str, on_event: Callable[[ControlLogEvent], None], left: Mapping[str, DurableRecord]
    ) -> None:
        self.transactions = 0
        self._left, self._on_event = left, on_event
        kafka = KafkaConfig(bootstrap=bootstrap, prefix=f"rounds-{os.getpid()}-{time.monotonic_ns()}")
        self._log = ControlLog(kafka, ME, self._event)
        self.start, self.append, self.stop_applying = (
            self._log.start,
            self._log.append_changes,
            self._log.close,
        )
        committed = TermProducer.commit_payloads

        def commit(producer: TermProducer, *arguments: Any, **named: Any) -> int:
            self.transactions += 1
            return committed(producer, *arguments, **named)

        TermProducer.commit_payloads = commit  # type: ignore[method-assign]

    def _event(self, event: ControlLogEvent) -> None:
        """An earlier owner has left records."""
        self._on_event(Elected(event.rev, self._left, event.at) if isinstance(event, Elected) else event)


@dataclass
class Figures:
    """Seconds; what was counted since the last agent that dies had been heard."""

    counts: Counter[str] = field(default_factory=Counter)
    first_record: float = 0.0
    last_start: float = 0.0


class Stage:
    """`server.leader_machine.Outside`, and the agents."""

    def __init__(self, options: argparse.Namespace) -> None:
        units, agents = options.units, options.agents
        limits = MoveLimits(agent_burst=options.agent_burst)
        config = LeaderConfig(interval=0.5, lease=3.0, balance_every=1e9, limits=limits)
        self._machine = LeaderMachine(lambda: ME, config, self)
        self.found, self.seen = Figures(), False
        self._wait, self._stored = options.wait, 0
        self.rev = 0
        self._closed = False
        self._system: BatchSystem[AgentMachine, Up] = BatchSystem(self._machine, self._handler, BatchConfig())
        self._inbox: queue.SimpleQueue[tuple[str, Down]] = queue.SimpleQueue()
        left = records(units, agents)
        self.log: Any = (
            Committing(options.kafka, self._tell, left) if options.kafka else Memory(self._tell, left)
        )
        self._ticker = Ticker(0.1, lambda: self._tell(TickDue()))
        self._inventory = inventory(units)
        self.agents = {agent_name(n): self._agent(n, units, agents) for n in range(agents)}
        self.dead: set[str] = set()
        self.lost = {u for n in range(agents // 2) for u in held(units, agents, n)}
        self.given: dict[str, str] = {}
        self.cpu: Counter[str] = Counter()

    def _handler(self, number: int) -> BatchHandler:
        stage = self

        class Timed(BatchHandler):
            """Counts the processor time of each round."""

            def end_round(self, batch: list[AgentMachine]) -> None:
                super().end_round(batch)
                now = time.thread_time()
                if stage.seen:
                    stage.found.counts["rounds"] += 1
                    stage.cpu["owner"] += int(1e6 * (now - getattr(self, "_cpu", now)))
                self._cpu = now

        return Timed(self._system.router.send_control)

    def _agent(self, number: int, units: int, agents: int) -> Simulated:
        name = agent_name(number)
        agent = Simulated(name, core.AgentState(name, f"{name}-i"))
        agent.state.leader = ObeyedLeader(agent_epoch=number + 1)
        agent.state.units = HeldUnits(held(units, agents, number))
        agent.state.times.next_heartbeat = time.monotonic() + 0.02 * number
        machine = AgentMachine(name, number, 10_000)
        self._system.router.register_machine(number, machine)
        self._tell(StreamJoined(machine))

        def send(message: Up) -> bool:
            self._system.router.send(number, message)
            return True

        agent.send = send
        return agent

    def _tell(self, message: object) -> None:
        if isinstance(message, RecordsCommitted):
            self._stored = message.token
        self._system.router.send_control(message)

    # Outside

    def push_messages(self, agent: str, message: Any) -> bool:
        for one in message if isinstance(message, list) else [message]:
            self._inbox.put((agent, one))
        if self.seen:
            self.found.counts["pushes"] += 1
        return True

    def append_changes(self, rev: int, token: int, changes: tuple[RecordChange, ...]) -> None:
        if self.seen:
            units = sum(isinstance(r, UnitRecord) and r.unit in self.lost for _, r in changes)
            self.found.counts["appends"] += 1
            self.found.counts["records"] += len(changes)
            if units and not self.found.first_record:
                self.found.first_record = time.monotonic()
                self.found.counts["transactions"] -= self.log.transactions
                self.cpu.clear()
                self.found.counts["rounds"] = 0
        self.log.append_changes(rev, token, changes)
        while (
            self._wait and self._stored < token and not self._closed
        ):  # as if `end` were to wait for its write
            time.sleep(0.0005)

    def resign_term(self, why: str) -> None:
        raise RuntimeError(f"resigned: {why}")

    def queue_fence(self, rev: int, unit: str, uid: str, assignment: int) -> None: ...

    def set_leader(self, leader: Any) -> None: ...

    def set_term(self, rev: int) -> None:
        self.rev = rev

    def finish_tick(self, took: float) -> None:
        self._ticker.finish_tick(took)

    def get_counters(self) -> dict[str, int]:
        return {}

    # the agents' thread

    def _drive(self) -> None:
        while not self._closed:
            live = [agent for name, agent in self.agents.items() if name not in self.dead]
            due = min(agent.beat_if_due() for agent in live)
            with contextlib.suppress(queue.Empty):
                while True:
                    name, message = self._inbox.get(timeout=max(0.0, due - time.monotonic()))
                    if name not in self.dead:
                        self.agents[name].step(core.InstructionReceived(message))
                    if time.monotonic() >= due:
                        break

    def _started(self) -> int:
        """Units of the dead that replicate elsewhere."""
        term = self._machine.term
        if term is None:
            return 0
        sets = term.state.sets.by_unit
        found = 0
        for unit in self.lost:
            primary = sets[unit].primary
            found += (
                primary is not None
                and primary.agent not in self.dead
                and sets[unit].state.value == "replicating"
            )
        return found

    def run(self) -> dict[str, Any]:
        self._system.start()
        self.log.start()
        self._ticker.start()
        driver = threading.Thread(target=self._drive, daemon=True)
        _until(lambda: self.rev > 0)
        self._tell(InventoryRead(self.rev, self._inventory))
        driver.start()
        _until(self._all_replicate)
        self.dead = {agent_name(n) for n in range(len(self.agents) // 2)}
        self.seen = True
        _until(lambda: self._started() == len(self.lost))
        ended = time.monotonic()
        self.found.counts["transactions"] += self.log.transactions
        cpu = self.cpu["owner"]
        self._closed = True
        driver.join(5)
        self._ticker.close()
        self.log.close()
        self._system.close()
        seconds, lost = ended - self.found.first_record, len(self.lost)
        return {
            "lost_units": lost,
            "seconds": round(seconds, 3),
            "units_per_s": round(lost / seconds),
            "owner_cpu_us_per_unit": round(cpu / lost),
            **dict(self.found.counts),
        }

    def _all_replicate(self) -> bool:
        term = self._machine.term
        return term is not None and all(
            one.state.value == "replicating" for one in term.state.sets.by_unit.values()
        )


def _until(true: Callable[[], bool], patience: float = 120.0) -> None:
    deadline = time.monotonic() + patience
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError("the bench does not get on")
        time.sleep(0.01)


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    parser = argparse.ArgumentParser(prog="python -m bench.rounds", description=__doc__)
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--agent-burst", type=int, default=20)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--kafka")
    parser.add_argument("--embedded", action="store_true")
    parser.add_argument(
        "--wait", action="store_true", help="the leader waits for each write before it says anything"
    )
    options = parser.parse_args()
    with contextlib.ExitStack() as services:
        if options.embedded:
            services.enter_context(combine_services(kafka := Kafka()))
            options.kafka = kafka.bootstrap
        for _ in range(options.times):
            print(json.dumps(Stage(options).run()), flush=True)


if __name__ == "__main__":
    main()
