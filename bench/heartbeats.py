"""Heartbeats at scale: a real coordinator process, real gRPC, and many agents in a few processes.

The agents are the real core with workers that are ready at once and always have progress; one thread a
process drives them all. A tenth of the agents lives in a process of its own: killing that is the loss of
these agents.

python -m bench.heartbeats [--units 10000] [--agents 100] [--kafka BOOTSTRAP] (without Kafka: a log in memory)
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil
import structlog

from coordinator.core import agent as core
from coordinator.core.agent_state import HeldUnits, ObeyedLeader
from coordinator.core.agent_unit import AgentUnit, PrepareWorker, RemoveWorker, StartWorker
from coordinator.core.leader.state import Inventory, LeaderConfig
from coordinator.core.members import MemberState
from coordinator.core.messages import Dispatch, Down
from coordinator.core.records import AgentRecord, DurableRecord, UnitRecord, build_record_key
from coordinator.core.schedulers import InventoryUnit, UnitKind
from schemas.units import Prepared, UnitOperation, UnitPhase, UnitProgress, UnitProgressed, WorkerEnded

PIPELINES = 10
PROCESSES = 10
EPOCHS = 1_000_000


def agent_name(number: int) -> str:
    return f"agent-{number:04}"


def records(units: int, agents: int) -> dict[str, DurableRecord]:
    """Return what an earlier leader has left: every unit on an agent."""
    found: list[DurableRecord] = [
        AgentRecord(agent_name(n), f"{agent_name(n)}-i", n + 1) for n in range(agents)
    ]
    for number, spec in enumerate(inventory(units).units):
        at = number % agents
        found.append(UnitRecord(spec.unit, spec.uid, ((agent_name(at), at + 1, EPOCHS + number),)))
    return {build_record_key(record): record for record in found}


def held(units: int, agents: int, agent: int) -> dict[str, AgentUnit]:
    """Return what the agent of this number runs, by these records; its leases last for two minutes."""
    mine = list(enumerate(inventory(units).units))[agent::agents]
    deadline = time.monotonic() + 120
    return {
        spec.unit: AgentUnit(spec.unit, EPOCHS + number, UnitPhase.REPLICATING, deadline=deadline)
        for number, spec in mine
    }


def inventory(units: int) -> Inventory:
    """Return apply units of ten pipelines, each of ten sources."""
    specs = []
    for number in range(units):
        pipeline, source = f"to-head-office-{number % PIPELINES}", f"branch{number // PIPELINES % 10}"
        unit = f"apply/{pipeline}/rowlock.{source}.bank.account_{number:06}"
        specs.append(InventoryUnit(unit, UnitKind.APPLY, source, pipeline, "1"))
    sources = {f"to-head-office-{n}": tuple(f"branch{m}" for m in range(10)) for n in range(PIPELINES)}
    return Inventory(tuple(specs), sources)


# the coordinator's process


class MemoryLog:
    """Replaces the control log: the candidate is elected at once, and a record is durable after as long as a
    Kafka transaction takes."""

    left: Mapping[str, DurableRecord] = {}  # by an earlier leader
    go = threading.Event()

    def __init__(
        self, _kafka: object, candidate: Any, on_event: Callable[[Any], None], _config: object
    ) -> None:
        self._candidate, self._forward_event = candidate, on_event
        self._queue: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="memory-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def append_changes(
        self, rev: int, token: int, _changes: tuple[tuple[str, DurableRecord | None], ...]
    ) -> None:
        self._queue.put((rev, token))

    def resign_term(self, why: str) -> None:
        raise RuntimeError(f"resigned: {why}")

    def stop_applying(self) -> None:
        self._queue.put(None)
        self._thread.join(5)

    def get_counters(self) -> dict[str, int]:
        return {}

    def _run(self) -> None:
        from coordinator.control.events import Elected, NewLeader, RecordsCommitted, WriteConfirmed

        self.go.wait()
        self._forward_event(Elected(1, self.left))
        self._forward_event(NewLeader(1, self._candidate))
        while True:
            with contextlib.suppress(queue.Empty):
                if (first := self._queue.get(timeout=1.0)) is None:
                    return
                time.sleep(0.005)
                self._forward_event(RecordsCommitted(*first))
                for _ in range(self._queue.qsize()):
                    if (more := self._queue.get()) is None:
                        return
                    self._forward_event(RecordsCommitted(*more))
            self._forward_event(WriteConfirmed(1, time.monotonic()))


def coordinator_main(options: dict[str, Any]) -> None:
    """Serve until stdin ends; a line on stdin asks for figures, which come as a JSON line."""
    from coordinator.server import coordinator as server
    from coordinator.server.config import ServerConfig
    from schemas.config.model import KafkaConfig

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    if not options["kafka"]:
        MemoryLog.left = records(options["units"], options["agents"])
        server.ControlLog = MemoryLog  # type: ignore[misc, assignment]
    found = inventory(options["units"])
    watched = Watched(
        ServerConfig("bench", "127.0.0.1:0",
         leader=LeaderConfig(interval=options["interval"], lease=options["lease"], balance_every=1e9)),
        KafkaConfig(bootstrap=options["kafka"] or "none:1", prefix=f"bench-{os.getpid()}"),
        lambda: found,
        lambda unit, uid, assignment: None,
    )  # fmt: skip
    print(json.dumps({"port": watched.start()}), flush=True)
    for line in sys.stdin:
        if line.strip() == "elect":
            MemoryLog.go.set()
            continue
        print(json.dumps(watched.figures(line.strip())), flush=True)
    watched.close()


def _watched() -> type[Any]:
    from coordinator.server import coordinator as server
    from coordinator.server.parts import CoordinatorParts

    prepared: dict[str, float] = {}
    watched: set[str] = set()

    class WatchedParts(CoordinatorParts):
        """Notes when a watched unit is to be prepared elsewhere."""

        def push_messages(self, agent: str, messages: list[Down]) -> int:
            for message in messages:
                if (
                    isinstance(message, Dispatch)
                    and message.op is UnitOperation.PREPARE
                    and message.unit in watched
                ):
                    prepared.setdefault(message.unit, time.monotonic())
            return super().push_messages(agent, messages)

    server.CoordinatorParts = WatchedParts  # type: ignore[misc]

    class Watched(server.Coordinator):
        """A coordinator that remembers when the units were dispatched that it was told to watch."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.watched_agents: set[str] = set()
            self.expired: dict[str, float] = {}
            threading.Thread(target=self._watch, daemon=True, name="bench-watch").start()

        def _watch(self) -> None:
            """Note when the watched agents count as gone."""
            while True:
                time.sleep(0.01)
                term = self._machine.term
                state = term.state if term is not None else None
                for name in [name for name in self.watched_agents if name not in self.expired]:
                    member = state.members.by_name.get(name) if state is not None else None
                    if member is not None and member.state is MemberState.EXPIRED:
                        self.expired[name] = time.monotonic()

        def figures(self, what: str) -> dict[str, Any]:
            view = self.get_view(timeout=60)
            if what:
                agents = set(what.split())
                watched.clear()
                watched.update(unit.unit for unit in view.units if unit.agent in agents)
                prepared.clear()
                self.watched_agents = agents
            states: dict[str, int] = {}
            for unit in view.units:
                states[unit.state] = states.get(unit.state, 0) + 1
            return {
                "states": states,
                "agents": {a.name: (a.state, a.units) for a in view.agents},
                "counters": dict(view.counters),
                "watched": len(watched),
                "first_expired": min(self.expired.values(), default=None),
                "last_expired": max(self.expired.values(), default=None),
                "prepared": len(prepared),
                "last_prepare": max(prepared.values(), default=None),
            }

    return Watched


class Watched:
    """Made when it is needed: importing the coordinator takes what agents' processes do without."""

    def __new__(cls, *arguments: Any) -> Any:
        return _watched()(*arguments)


# the agents' processes


@dataclass
class Simulated:
    """One agent: the real core, workers that do at once what they are asked."""

    name: str
    state: core.AgentState
    send: Callable[[Any], bool] = lambda _message: False
    todo: list[core.AgentEvent] = field(default_factory=list)

    def step(self, event: core.AgentEvent) -> None:
        self.todo.append(event)
        while self.todo:
            self.state, effects = core.step_agent(self.state, self.todo.pop(0), time.monotonic())
            for effect in effects:
                self._carry_out(effect)

    def _carry_out(self, effect: core.AgentEffect) -> None:
        match effect:
            case core.SendUp(message):
                self.send(message)
            case PrepareWorker(unit, assignment, _):
                self.todo.append(core.WorkerEventReceived(unit, Prepared(assignment)))
            case StartWorker(unit, assignment, _):
                self.todo.append(core.WorkerEventReceived(unit, UnitProgressed(assignment, _mark(unit), 100)))
            case RemoveWorker(unit, assignment):
                self.todo.append(core.WorkerEventReceived(unit, WorkerEnded(assignment, _mark(unit))))

    def beat_if_due(self) -> float:
        """Every unit has progress before every heartbeat. Returns when the next one is due."""
        now = time.monotonic()
        if now >= self.state.times.next_heartbeat:
            for unit, held in list(self.state.units.by_name.items()):
                if held.state is UnitPhase.REPLICATING:
                    self.step(
                        core.WorkerEventReceived(
                            unit, UnitProgressed(held.assignment, _mark(unit), 100 + hash(unit) % 50)
                        )
                    )
            self.step(core.AgentTick())
        return core.compute_next_wakeup(self.state)


def _mark(unit: str) -> UnitProgress:
    now = int(time.time() * 1000)
    return UnitProgress(now, now + 5, (0, 3, now, 17))


def agents_main(options: dict[str, Any]) -> None:
    """Run agents until stdin ends."""
    from coordinator.transport.client import HeartbeatClient

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
                        logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # fmt: skip
    inbox: queue.SimpleQueue[tuple[Simulated, core.AgentEvent]] = queue.SimpleQueue()
    agents, clients = [], []
    for number in options["numbers"]:
        name = agent_name(number)
        agent = Simulated(name, core.AgentState(name, f"{name}-i"))
        if options["running"]:
            agent.state.leader = ObeyedLeader(agent_epoch=number + 1)
            agent.state.units = HeldUnits(held(options["units"], options["agents"], number))
        agent.state.times.next_heartbeat = time.monotonic() + random.random()
        client = HeartbeatClient(name, options["peers"], _into(inbox, agent))
        agent.send = client.send
        client.start()
        agents.append(agent)
        clients.append(client)
    print(json.dumps({"ready": len(agents)}), flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    while True:
        due = min(agent.beat_if_due() for agent in agents)
        with contextlib.suppress(queue.Empty):
            while True:
                agent, event = inbox.get(timeout=max(0.0, due - time.monotonic()))
                agent.step(event)
                if time.monotonic() >= due:
                    break


def _into(inbox: queue.SimpleQueue[Any], agent: Simulated) -> Callable[[Down], None]:
    return lambda message: inbox.put((agent, core.InstructionReceived(message)))


# the measurement


class Child:
    def __init__(self, role: str, options: Mapping[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.heartbeats", "--child", role, json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def read_chunk(self) -> dict[str, Any]:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise RuntimeError("a process of the bench has ended")
        return dict(json.loads(line))

    def say(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def ask(self, what: str = "") -> dict[str, Any]:
        self.say(what)
        return self.read_chunk()

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def run(
    units: int,
    agents: int,
    *,
    kafka: str | None = None,
    interval: float = 1.0,
    lease: float = 10.0,
    steady: float = 20.0,
    patience: float = 300.0,
) -> dict[str, Any]:
    """Return the figures of one measurement. `kafka`: bootstrap of a real broker for the control log, and
    every unit is given out from nothing. None: a log in memory, and an earlier leader has left every unit
    running.

    Seconds: `interval` and `lease` as the leader sends them, `steady`: how long the steady state is measured.
    """
    what = {
        "units": units,
        "agents": agents,
        "kafka": kafka,
        "interval": interval,
        "lease": lease,
        "running": not kafka,
    }
    owner = Child("coordinator", what)
    with contextlib.ExitStack() as stack:
        stack.callback(owner.close)
        peers = [f"127.0.0.1:{owner.read_chunk()['port']}"]
        numbers = [list(range(start, agents, PROCESSES)) for start in range(PROCESSES)]
        groups = [Child("agents", {**what, "numbers": some, "peers": peers}) for some in numbers]
        for group in groups:
            stack.callback(group.close)
            group.read_chunk()
        begun = time.monotonic()
        owner.say("elect")
        _settled(owner, units, patience)
        figures = {"units": units, "agents": agents, "interval_s": interval, "lease_s": lease,
                   "control_log": "kafka" if kafka else "memory", "replicating_s": time.monotonic() - begun,
                   "replicating_cpu_s": _cpu(owner)}  # fmt: skip
        figures |= _steady(owner, steady)
        figures |= _loss(owner, groups[0], [agent_name(n) for n in numbers[0]], units, patience)
    return figures


def _cpu(child: Child) -> float:
    return float(sum(psutil.Process(child.process.pid).cpu_times()[:2]))


def _settled(owner: Child, units: int, patience: float) -> dict[str, Any]:
    """Wait until every unit replicates."""
    deadline = time.monotonic() + patience
    while (found := owner.ask())["states"].get("replicating", 0) < units:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all of {units} units replicate after {patience} s: {found['states']}")
        time.sleep(1 + units / 20_000)  # asking costs the coordinator time
    return found


def _steady(owner: Child, seconds: float) -> dict[str, Any]:
    """Measure the coordinator's process while nothing happens but heartbeats."""
    process = psutil.Process(owner.process.pid)
    time.sleep(3)
    before, began, used = owner.ask()["counters"], time.monotonic(), _cpu(owner)
    time.sleep(seconds)
    cpu, took = _cpu(owner) - used, time.monotonic() - began
    after = owner.ask()["counters"]

    def rate(what: str) -> float:
        return (after[what] - before[what]) / took

    return {
        "cpu_percent": 100 * cpu / took,
        "up_bytes_s": rate("transport.up bytes"),
        "down_bytes_s": rate("transport.down bytes"),
        "up_messages_s": rate("transport.up messages"),
        "memory_mib": process.memory_info().rss / 2**20,
        "tick_ms": after["owner.tick_us"] / 1000,
        "threads": process.num_threads(),
    }


def _loss(owner: Child, group: Child, names: list[str], units: int, patience: float) -> dict[str, Any]:
    """Kill a tenth of the agents; measure from when the leader gives the first of their units to another
    until its plan for all of them is out, and until they replicate."""
    lost = owner.ask(" ".join(names))["watched"]
    group.process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    deadline = killed + patience
    while (found := owner.ask())["prepared"] < lost:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{found['prepared']} of {lost} units dispatched after {patience} s")
        time.sleep(0.5)
    _settled(owner, units, patience)
    return {
        "lost_units": lost,
        "first_gone_s": found["first_expired"] - killed,
        "last_gone_s": found["last_expired"] - killed,
        "planned_s": found["last_prepare"] - found["last_expired"],
        "kill_to_planned_s": found["last_prepare"] - killed,
        "kill_to_replicating_s": time.monotonic() - killed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", nargs=2)
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--kafka")
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--lease", type=float, default=10.0)
    parser.add_argument("--steady", type=float, default=20.0)
    options = parser.parse_args()
    if options.child:
        role, given = options.child
        {"coordinator": coordinator_main, "agents": agents_main}[role](json.loads(given))
        return
    figures = run(options.units, options.agents, kafka=options.kafka, interval=options.interval,
                  lease=options.lease, steady=options.steady)  # fmt: skip
    print(
        json.dumps(
            {key: round(value, 3) if isinstance(value, float) else value for key, value in figures.items()}
        )
    )


if __name__ == "__main__":
    main()
