"""The pure core of an agent: a state machine that decides which leader the agent obeys, which units it
holds, and when it must stop writing.

The agent obeys the leader with the highest `owner_rev` that has announced itself, and answers messages
of earlier leaders with `Rejected`. It keeps one `agent_unit.AgentUnit` per unit; the shell runs one
worker for each. The leader grants leases unit by unit. A lease counts from the time at which the agent
sent the message that the leader answers.

All times are seconds of the agent's monotonic clock. `step_agent` changes the state that it is given and
returns it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from coordinator.core.agent_state import FollowedConfiguration, HeartbeatTimes, HeldUnits, ObeyedLeader
from coordinator.core.agent_unit import AgentUnit, Granted, Halt, Instruction, UnitEffect, UnitEvent
from coordinator.core.agent_unit import UnitTick as UnitTick
from coordinator.core.messages import (
    Announce,
    Checkpoint,
    ConfigVersion,
    Dispatch,
    DispatchResponse,
    Down,
    FileAnswer,
    Heartbeat,
    HeartbeatResponse,
    Hello,
    Liveness,
    Rejected,
    Superseded,
    Sync,
    UnitStatus,
    Up,
)
from schemas.slots import SlotReport
from schemas.units import OldestAgents, UnitOperation, UnitPhase, WorkerEvent


@dataclass(slots=True)
class AgentState:
    """The state of an agent: the leader that it obeys, its units, and what its next messages contain."""

    name: str
    incarnation: str
    version: str = ""
    """The agent's version of rowlock."""
    configuration: FollowedConfiguration | None = None
    """None: the agent takes no part in reloads."""
    leader: ObeyedLeader = field(default_factory=ObeyedLeader)
    times: HeartbeatTimes = field(default_factory=HeartbeatTimes)
    units: HeldUnits = field(default_factory=HeldUnits)
    oldest: OldestAgents | None = None
    """The oldest agents, as a leader last reported them."""
    slots: SlotReport | None = None
    """The slots of the apply process in Spark; None: not known."""
    liveness: Liveness = Liveness.ALIVE
    ending: str | None = None
    """Why the agent is shutting down; None while it runs."""
    dropped: Counter[str] = field(default_factory=Counter)
    """The number of messages that were not obeyed, by reason."""

    def replace_oldest(self, oldest: OldestAgents) -> bool:
        """Keep the oldest agents, and return whether they are others than before."""
        is_new, self.oldest = oldest != self.oldest, oldest
        return is_new

    def note_slots(self, slots: SlotReport | None) -> None:
        """Report these slots with each heartbeat."""
        self.slots = slots

    def drain(self) -> None:
        """Ask for the units to be moved to other agents, for good."""
        self.liveness = Liveness.STOPPING

    def begin_shutdown(self, why: str) -> None:
        """Hold no more units, and end when the last worker has ended."""
        self.liveness, self.ending = Liveness.STOPPING, why


@dataclass(frozen=True, slots=True)
class InstructionReceived:
    message: Down


@dataclass(frozen=True, slots=True)
class WorkerEventReceived:
    """An event of a unit's worker."""

    unit: str
    event: WorkerEvent


@dataclass(frozen=True, slots=True)
class AgentTick:
    """Time has passed. The shell sends this event no later than at the time that `compute_next_wakeup`
    returns.
    """

    slots: SlotReport | None = None
    """What the apply process reports of its slots in Spark; None: not known."""


@dataclass(frozen=True, slots=True)
class DrainSelf:
    """The operator of this machine wants its units to be moved to other agents. The wish holds until
    this incarnation ends.
    """


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop all workers, then return `ExitAgent`."""

    why: str = "shut down"


@dataclass(frozen=True, slots=True)
class FileRead:
    """The answer to `ReadFile`."""

    answer: FileAnswer


@dataclass(frozen=True, slots=True)
class ConfigTaken:
    """The result of `TakeConfig`. Units that are prepared from now on run under `version`; None: the
    file does not hold the configuration that was asked for.
    """

    version: ConfigVersion | None


AgentEvent = (
    InstructionReceived | WorkerEventReceived | AgentTick | DrainSelf | Shutdown | FileRead | ConfigTaken
)


@dataclass(frozen=True, slots=True)
class SendUp:
    message: Up


@dataclass(frozen=True, slots=True)
class ExitAgent:
    """Every worker has ended, and the process is to exit."""

    why: str


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Read the configuration file, and report its content and whether the agent could load it. Nothing
    changes.
    """

    asked: int
    """The number of the question."""


@dataclass(frozen=True, slots=True)
class TakeConfig:
    """Load this configuration for the units that are prepared from now on, if the file holds it."""

    version: ConfigVersion


@dataclass(frozen=True, slots=True)
class UseOldestAgents:
    """The oldest agents are others than before."""

    oldest: OldestAgents


AgentEffect = SendUp | ExitAgent | ReadFile | TakeConfig | UseOldestAgents | UnitEffect


def step_agent(state: AgentState, event: AgentEvent, now: float) -> tuple[AgentState, list[AgentEffect]]:
    """Return the agent after `event` at `now`, and what the shell has to do, in order. The old state
    must not be used any more.
    """
    out: list[AgentEffect] = []
    match event:
        case InstructionReceived(message):
            _receive_message(state, message, now, out)
        case WorkerEventReceived(unit, worker_event):
            _handle_worker_event(state, unit, worker_event, now, out)
        case AgentTick(slots):
            state.note_slots(slots)
            _handle_tick(state, now, out)
        case DrainSelf():
            state.drain()
        case Shutdown(why):
            _begin_shutdown(state, why, now, out)
        case FileRead(answer):
            _handle_file_read(state, answer, now, out)
        case ConfigTaken(version):
            _handle_config_taken(state, version, now, out)
    if state.ending is not None and not state.units.has_running():
        out.append(ExitAgent(state.ending))
    return state, out


def compute_next_wakeup(state: AgentState) -> float:
    """Return the latest time of the next `AgentTick`: the next heartbeat or checkpoint, or the end of the
    first lease.
    """
    checkpoints = [state.times.next_checkpoint] if state.units.moved else []
    leases = [held.deadline for held in state.units.list_writing()]
    return min([state.times.next_heartbeat, *checkpoints, *leases])


# messages from leaders


def _receive_message(state: AgentState, message: Down, now: float, out: list[AgentEffect]) -> None:
    header = message.header
    leader = state.leader
    if header.owner_rev < leader.rev:
        state.dropped["old owner"] += 1
        out.append(SendUp(Rejected(leader.build_header(), state.name, leader.rev)))
    elif isinstance(message, Announce):
        _handle_announce(state, message, now, out)
    elif isinstance(message, Superseded) and header.agent_epoch == leader.agent_epoch:
        # Obeyed without an announcement: this leader will not announce itself to an incarnation that it
        # counts as replaced.
        _begin_shutdown(state, "another process has this agent's name", now, out)
    elif header.owner_rev > leader.rev:
        state.dropped["owner not announced"] += 1
    elif header.agent_epoch != leader.agent_epoch:
        state.dropped["other incarnation"] += 1
    elif isinstance(message, Dispatch):
        _handle_dispatch(state, message, now, out)
    elif isinstance(message, HeartbeatResponse):
        _renew_leases(state, message, now, out)


def _handle_announce(state: AgentState, message: Announce, now: float, out: list[AgentEffect]) -> None:
    if message.incarnation != state.incarnation or message.header.agent_epoch < state.leader.agent_epoch:
        state.dropped["other incarnation"] += 1
        return
    if state.leader.is_contradicted(message):
        state.dropped["two owners in one term"] += 1
        return
    if state.leader.adopt_announcement(message):
        # Instructions of earlier leaders are rejected from now on.
        state.units.forget_absent()
    state.times.set_interval(message.interval)
    _send_sync(state, now, out)


def _send_sync(state: AgentState, now: float, out: list[AgentEffect]) -> None:
    kinds: dict[str, list[UnitStatus]] = {"running": [], "adding": [], "removing": []}
    for status in state.units.list_statuses():
        if status.state is UnitPhase.REPLICATING:
            kinds["running"].append(status)
        elif status.state in {UnitPhase.PREPARING, UnitPhase.PREPARED}:
            kinds["adding"].append(status)
        else:
            kinds["removing"].append(status)
    running, adding, removing = (tuple(found) for found in kinds.values())
    held = (running, adding, removing)
    header, config = state.leader.build_header(), _get_config_version(state)
    out.append(SendUp(Sync(header, state.name, now, *held, state.liveness, config, state.version)))


def _handle_dispatch(state: AgentState, message: Dispatch, now: float, out: list[AgentEffect]) -> None:
    instruction = Instruction(
        message.op, message.header.assignment, message.mark, message.echo + message.lease
    )
    held = state.units.find_unit(message.unit)
    if state.ending is None or message.op in {UnitOperation.REMOVE, UnitOperation.FORGET}:
        held = _step_unit(state, message.unit, instruction, now, out)
    header = state.leader.build_header(held.assignment)
    out.append(SendUp(DispatchResponse(header, state.name, message.header.op_seq, held.status, message.op)))


def _renew_leases(state: AgentState, message: HeartbeatResponse, now: float, out: list[AgentEffect]) -> None:
    state.times.set_interval(message.interval)
    deadline = message.echo + message.lease
    for unit, assignment in message.granted:
        if unit in state.units.by_name:
            _step_unit(state, unit, Granted(assignment, deadline), now, out)
    if message.oldest is not None and state.replace_oldest(message.oldest):
        out.append(UseOldestAgents(message.oldest))
    _follow_configuration(state, message, now, out)


def _follow_configuration(
    state: AgentState, message: HeartbeatResponse, now: float, out: list[AgentEffect]
) -> None:
    """Load the active configuration and answer the leader's question about the file."""
    configuration, active = state.configuration, message.config
    if configuration is None:
        return
    if configuration.begin_attempt(active, now) and active is not None:
        out.append(TakeConfig(active))
    if configuration.begin_answer(message.ask):
        out.append(ReadFile(message.ask))


def _handle_file_read(state: AgentState, answer: FileAnswer, now: float, out: list[AgentEffect]) -> None:
    if state.configuration is not None:
        state.configuration.answer(answer)
        _send_heartbeat_now(state, now, out)


def _handle_config_taken(
    state: AgentState, version: ConfigVersion | None, now: float, out: list[AgentEffect]
) -> None:
    if state.configuration is not None and version is not None:
        state.configuration.adopt(version)
        _send_heartbeat_now(state, now, out)


def _get_config_version(state: AgentState) -> ConfigVersion | None:
    return None if state.configuration is None else state.configuration.version


def _send_heartbeat_now(state: AgentState, now: float, out: list[AgentEffect]) -> None:
    """Send a heartbeat now, because the leader waits for its content."""
    state.times.make_heartbeat_due(now)
    _handle_tick(state, now, out)


# events of this machine


def _step_unit(
    state: AgentState, unit: str, event: UnitEvent, now: float, out: list[AgentEffect]
) -> AgentUnit:
    held, effects = state.units.step_unit(unit, event, now)
    out.extend(effects)
    return held


def _handle_worker_event(
    state: AgentState, unit: str, event: WorkerEvent, now: float, out: list[AgentEffect]
) -> None:
    before = state.units.by_name.get(unit)
    if before is None:
        state.dropped["unknown worker"] += 1
        return
    held = _step_unit(state, unit, event, now, out)
    if held.mark != before.mark:
        state.units.note_progress(unit)
    if held.state is not before.state and state.leader.is_known:
        out.append(
            SendUp(DispatchResponse(state.leader.build_header(held.assignment), state.name, 0, held.status))
        )


def _handle_tick(state: AgentState, now: float, out: list[AgentEffect]) -> None:
    for held in list(state.units.list_writing()):
        _step_unit(state, held.unit, UnitTick(), now, out)
    if state.times.begin_heartbeat(now):
        _send_heartbeat(state, now, out)
    elif state.units.moved and state.times.begin_checkpoint(now, len(state.units.by_name)):
        marks = state.units.take_progress()
        out.append(SendUp(Checkpoint(state.leader.build_header(), state.name, marks)))


def _send_heartbeat(state: AgentState, now: float, out: list[AgentEffect]) -> None:
    header, statuses = state.leader.build_header(), state.units.take_statuses()
    if not state.leader.is_known:
        out.append(SendUp(Hello(header, state.name, state.incarnation)))
        return
    config = _get_config_version(state)
    file = state.configuration.file if state.configuration is not None else None
    beat = Heartbeat(header, state.name, now, statuses, state.liveness, config, file, state.slots)
    out.append(SendUp(beat))


def _begin_shutdown(state: AgentState, why: str, now: float, out: list[AgentEffect]) -> None:
    state.begin_shutdown(why)
    for unit in list(state.units.by_name):
        _step_unit(state, unit, Halt(), now, out)
