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

from coordinator.core import agent_unit
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
    Header,
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
from schemas.units import UnitOperation, UnitPhase, WorkerEvent

TAKE_AGAIN = 5.0
"""Seconds between two attempts to load the active configuration, if the agent's file did not hold it."""


@dataclass(slots=True)
class AgentState:
    """The state of an agent: the leader that it obeys, its units, and what its next messages contain."""

    name: str
    incarnation: str
    owner: str = ""
    """The leader's name."""
    owner_rev: int = 0
    """The leader's term: the offset of its claim in the control topic; 0 before the first announcement."""
    agent_epoch: int = 0
    """The number of this incarnation, given by the leader; 0 before the first announcement."""
    seq: int = 0
    """The number of the last message sent in this incarnation."""
    interval: float = 1.0
    checkpoint_every: float = 0.2
    next_beat: float = float("-inf")
    next_checkpoint: float = float("-inf")
    liveness: Liveness = Liveness.ALIVE
    ending: str | None = None
    """Why the agent is shutting down; None while it runs."""
    units: dict[str, AgentUnit] = field(default_factory=dict)
    moved: dict[str, None] = field(default_factory=dict)
    """Units with progress that has not been sent yet."""
    dropped: Counter[str] = field(default_factory=Counter)
    """The number of messages that were not obeyed, by reason."""
    config: ConfigVersion | None = None
    """The configuration under which newly given units run; None: the agent takes no part in reloads."""
    taking: ConfigVersion | None = None
    """The active configuration that the agent is still loading from its file."""
    take_at: float = float("-inf")
    """Time of the next attempt to load that configuration (monotonic seconds)."""
    asked: int = 0
    """The number of the leader's last question about the agent's file."""
    file: FileAnswer | None = None
    """The last answer to a question about the agent's file."""
    version: str = ""
    """The agent's version of rowlock."""


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


AgentEffect = SendUp | ExitAgent | ReadFile | TakeConfig | UnitEffect


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
        case AgentTick():
            _handle_tick(state, now, out)
        case DrainSelf():
            state.liveness = Liveness.STOPPING
        case Shutdown(why):
            _begin_shutdown(state, why, now, out)
        case FileRead(answer):
            state.file = answer
            _send_heartbeat_now(state, now, out)
        case ConfigTaken(version):
            _handle_config_taken(state, version, now, out)
    if state.ending is not None and not _has_running_units(state):
        out.append(ExitAgent(state.ending))
    return state, out


def compute_next_wakeup(state: AgentState) -> float:
    """Return the latest time of the next `AgentTick`: the next heartbeat, or the end of the first lease."""
    leases = [h.deadline for h in state.units.values() if h.state is UnitPhase.REPLICATING]
    return min([state.next_beat, *leases])


def _has_running_units(state: AgentState) -> bool:
    return any(h.state not in {UnitPhase.ABSENT, UnitPhase.STOPPED} for h in state.units.values())


def _build_header(state: AgentState, assignment: int = 0) -> Header:
    state.seq += 1
    return Header(state.owner_rev, state.agent_epoch, assignment, state.seq)


def list_statuses(state: AgentState) -> tuple[UnitStatus, ...]:
    """Return the status of every unit that is held, ordered by unit name."""
    return tuple(h.status for _, h in sorted(state.units.items()) if h.state is not UnitPhase.ABSENT)


# messages from leaders


def _receive_message(state: AgentState, message: Down, now: float, out: list[AgentEffect]) -> None:
    header = message.header
    if header.owner_rev < state.owner_rev:
        state.dropped["old owner"] += 1
        out.append(SendUp(Rejected(_build_header(state), state.name, state.owner_rev)))
    elif isinstance(message, Announce):
        _handle_announce(state, message, now, out)
    elif isinstance(message, Superseded) and header.agent_epoch == state.agent_epoch:
        # Obeyed without an announcement: this leader will not announce itself to an incarnation that it
        # counts as replaced.
        _begin_shutdown(state, "another process has this agent's name", now, out)
    elif header.owner_rev > state.owner_rev:
        state.dropped["owner not announced"] += 1
    elif header.agent_epoch != state.agent_epoch:
        state.dropped["other incarnation"] += 1
    elif isinstance(message, Dispatch):
        _handle_dispatch(state, message, now, out)
    elif isinstance(message, HeartbeatResponse):
        _renew_leases(state, message, now, out)


def _handle_announce(state: AgentState, message: Announce, now: float, out: list[AgentEffect]) -> None:
    header = message.header
    if message.incarnation != state.incarnation or header.agent_epoch < state.agent_epoch:
        state.dropped["other incarnation"] += 1
        return
    if header.owner_rev == state.owner_rev and message.owner != state.owner:
        state.dropped["two owners in one term"] += 1
        return
    if header.owner_rev > state.owner_rev:
        # Instructions of earlier leaders are rejected from now on, so the assignments that they ended
        # can be forgotten.
        state.units = {unit: held for unit, held in state.units.items() if held.state is not UnitPhase.ABSENT}
    state.owner, state.owner_rev, state.agent_epoch = message.owner, header.owner_rev, header.agent_epoch
    state.interval = message.interval
    _send_sync(state, now, out)


def _send_sync(state: AgentState, now: float, out: list[AgentEffect]) -> None:
    kinds: dict[str, list[UnitStatus]] = {"running": [], "adding": [], "removing": []}
    for status in list_statuses(state):
        if status.state is UnitPhase.REPLICATING:
            kinds["running"].append(status)
        elif status.state in {UnitPhase.PREPARING, UnitPhase.PREPARED}:
            kinds["adding"].append(status)
        else:
            kinds["removing"].append(status)
    running, adding, removing = (tuple(found) for found in kinds.values())
    held = (running, adding, removing)
    sync = Sync(_build_header(state), state.name, now, *held, state.liveness, state.config, state.version)
    out.append(SendUp(sync))


def _handle_dispatch(state: AgentState, message: Dispatch, now: float, out: list[AgentEffect]) -> None:
    instruction = Instruction(
        message.op, message.header.assignment, message.mark, message.echo + message.lease
    )
    held = state.units.get(message.unit, AgentUnit(message.unit))
    if state.ending is None or message.op in {UnitOperation.REMOVE, UnitOperation.FORGET}:
        held = _step_unit(state, message.unit, instruction, now, out)
    header = _build_header(state, held.assignment)
    out.append(SendUp(DispatchResponse(header, state.name, message.header.op_seq, held.status, message.op)))


def _renew_leases(state: AgentState, message: HeartbeatResponse, now: float, out: list[AgentEffect]) -> None:
    state.interval = message.interval
    deadline = message.echo + message.lease
    for unit, assignment in message.granted:
        if unit in state.units:
            _step_unit(state, unit, Granted(assignment, deadline), now, out)
    _follow_configuration(state, message, now, out)


def _follow_configuration(
    state: AgentState, message: HeartbeatResponse, now: float, out: list[AgentEffect]
) -> None:
    """Load the active configuration and answer the leader's question about the file. An agent that
    reports no configuration (`config` is None) takes no part in reloads.
    """
    if state.config is None:
        return
    if message.config is None or message.config == state.config:
        state.taking = None
    elif message.config != state.taking or now >= state.take_at:
        state.taking, state.take_at = message.config, now + TAKE_AGAIN
        out.append(TakeConfig(message.config))
    if message.ask > state.asked:
        state.asked = message.ask
        out.append(ReadFile(message.ask))


def _handle_config_taken(
    state: AgentState, version: ConfigVersion | None, now: float, out: list[AgentEffect]
) -> None:
    if version is not None:
        state.config = version
        _send_heartbeat_now(state, now, out)


def _send_heartbeat_now(state: AgentState, now: float, out: list[AgentEffect]) -> None:
    """Send a heartbeat now, because the leader waits for its content."""
    state.next_beat = min(state.next_beat, now)
    _handle_tick(state, now, out)


# events of this machine


def _step_unit(
    state: AgentState, unit: str, event: UnitEvent, now: float, out: list[AgentEffect]
) -> AgentUnit:
    held, effects = agent_unit.step_agent_unit(state.units.get(unit, AgentUnit(unit)), event, now)
    state.units[unit] = held
    out.extend(effects)
    return held


def _handle_worker_event(
    state: AgentState, unit: str, event: WorkerEvent, now: float, out: list[AgentEffect]
) -> None:
    before = state.units.get(unit)
    if before is None:
        state.dropped["unknown worker"] += 1
        return
    held = _step_unit(state, unit, event, now, out)
    if held.mark != before.mark:
        state.moved[unit] = None
    if held.state is not before.state and state.agent_epoch:
        out.append(
            SendUp(DispatchResponse(_build_header(state, held.assignment), state.name, 0, held.status))
        )


def _handle_tick(state: AgentState, now: float, out: list[AgentEffect]) -> None:
    for unit, held in state.units.items():
        if held.state is UnitPhase.REPLICATING:
            _step_unit(state, unit, UnitTick(), now, out)
    if now >= state.next_beat:
        state.next_beat = now + state.interval
        _send_heartbeat(state, now, out)
    elif state.moved and now >= state.next_checkpoint:
        _send_checkpoint(state, out)
        state.next_checkpoint = now + state.checkpoint_every


def _send_heartbeat(state: AgentState, now: float, out: list[AgentEffect]) -> None:
    state.moved.clear()
    if state.agent_epoch == 0:
        out.append(SendUp(Hello(_build_header(state), state.name, state.incarnation)))
        return
    header, statuses = _build_header(state), list_statuses(state)
    out.append(SendUp(Heartbeat(header, state.name, now, statuses, state.liveness, state.config, state.file)))


def _send_checkpoint(state: AgentState, out: list[AgentEffect]) -> None:
    held = [state.units[unit] for unit in sorted(state.moved) if unit in state.units]
    marks = tuple((h.unit, h.assignment, h.mark) for h in held if h.mark is not None)
    state.moved.clear()
    out.append(SendUp(Checkpoint(_build_header(state), state.name, marks)))


def _begin_shutdown(state: AgentState, why: str, now: float, out: list[AgentEffect]) -> None:
    state.liveness, state.ending = Liveness.STOPPING, why
    for unit in list(state.units):
        _step_unit(state, unit, Halt(), now, out)
