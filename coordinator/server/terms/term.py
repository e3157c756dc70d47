"""One term of this coordinator as the leader: the core's state, and the execution of its effects. No
part of it outlives the term.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from coordinator.core.leader import state as core
from coordinator.core.leader import steps
from coordinator.core.leader.state import (
    Alarm,
    Fence,
    LeaderDecision,
    LeaderEvent,
    LeaderState,
    Persist,
    Refused,
    Reload,
    ReloadEnded,
    Resign,
    SendMessage,
)
from coordinator.core.messages import Up
from coordinator.server.agent_machine import AgentMachine
from coordinator.server.leader_round import LeaderRound
from coordinator.server.operators.api import CommandRefusedError, LeaderView, NotLeaderError, View
from coordinator.server.operators.journal import Journal
from coordinator.server.operators.view import build_leader_view
from coordinator.server.parts import CoordinatorParts
from coordinator.server.requests import CommandRequested
from schemas.problems import Problem

log = structlog.get_logger("coordinator")


class StreamTable:
    """The open streams of agents to this coordinator, their counters, and how the last one of an agent
    ended. If an agent has connected again, the newer stream counts.
    """

    def __init__(self) -> None:
        self._machines: dict[str, AgentMachine] = {}
        self._ended: dict[str, str] = {}

    def add_stream(self, machine: AgentMachine) -> None:
        self._machines[machine.agent] = machine

    def remove_stream(self, machine: AgentMachine, why: str) -> None:
        if self._machines.get(machine.agent) is machine:
            del self._machines[machine.agent]
            self._ended[machine.agent] = why
        log.info("stream of an agent ended", agent=machine.agent, reason=why)

    def take_end_reason(self, agent: str) -> str | None:
        """Return how the agent's last stream ended, and forget it."""
        return self._ended.pop(agent, None)

    def get_counters(self) -> dict[str, dict[str, int]]:
        return {name: machine.get_counters() for name, machine in self._machines.items()}


@dataclass(frozen=True, slots=True)
class CoordinatorContext:
    """The parts and records of a coordinator that outlive its terms."""

    parts: CoordinatorParts
    clock: Callable[[], float]
    """Monotonic seconds."""
    journal: Journal
    streams: StreamTable = field(default_factory=StreamTable)
    counts: Counter[str] = field(default_factory=Counter)


class PendingCommands:
    """Operators' commands that wait for their records, by the tokens of these. One command is executed at
    a time, and answered once its records are durable.
    """

    def __init__(self) -> None:
        self._now: CommandRequested | None = None
        self._waiting: dict[int, CommandRequested] = {}

    def carry_out(self, asked: CommandRequested, work: Callable[[], None]) -> None:
        """Run `work` for the command: every record, refusal or resignation meanwhile belongs to the
        command.
        """
        self._now = asked
        try:
            work()
        finally:
            self._now = None

    def add_stored_token(self, token: int) -> None:
        """Note that the present command has stored records under `token`."""
        if self._now is not None:
            self._waiting[token] = self._now

    def await_durable(self, token: int, asked: CommandRequested) -> None:
        """Answer a finished command once the records of `token` are durable."""
        self._waiting[token] = asked

    def refuse_command(self, problem: Problem) -> None:
        if self._now is not None:
            self._now.answer.fail_with(CommandRefusedError(problem))

    def end_with_term(self) -> None:
        """Answer the present command, whose step ends the term: a resignation has taken effect, and nothing
        of any other command is carried out.
        """
        if self._now is None:
            return
        if isinstance(self._now.command, Resign):
            self._now.answer.give_value(None)
        else:
            self._now.answer.fail_with(NotLeaderError(None))

    def settle_command(self, asked: CommandRequested) -> None:
        """Answer a command unless some of its records are not durable yet."""
        if not any(waiting is asked for waiting in self._waiting.values()):
            asked.answer.give_value(None)

    def confirm_durable(self, token: int) -> None:
        asked = self._waiting.pop(token, None)
        if asked is not None:
            self.settle_command(asked)

    def close(self) -> None:
        """End the term. The results of the waiting commands are unknown, so they fail with NotLeaderError."""
        waiting, self._waiting = self._waiting, {}
        for asked in waiting.values():
            asked.answer.fail_with(NotLeaderError(None))


class LeaderTerm:
    """One term of the leader. The core's decisions in a round of the batch system become one write to
    the log (server.leader_round), which `finish_round` makes.

    `step_down(why)` is called when the core gives up the term, and closes it. A closed term does nothing
    any more.
    """

    def __init__(
        self, state: LeaderState, lasting: CoordinatorContext, step_down: Callable[[str], None]
    ) -> None:
        self.state = state
        self.rev = state.rev
        self._closed = False
        self._lasting, self._step_down = lasting, step_down
        self._round = LeaderRound()
        self._commands = PendingCommands()
        self._reload: CommandRequested | None = None
        self._errors: dict[str, str] = {}

    def may_speak(self) -> bool:
        """Return whether this leader may still send messages: its claim was confirmed recently."""
        return not self._closed and not self.state.claim.silent

    @property
    def has_decided(self) -> bool:
        return bool(self._round)

    def close(self) -> None:
        self._closed = True
        self._commands.close()
        if self._reload is not None:
            self._reload.answer.fail_with(NotLeaderError(None))

    # events for the core

    def step_core(self, event: LeaderEvent) -> None:
        if self._closed:
            return
        self.state, effects = steps.step_leader(self.state, event, self._lasting.clock())
        self._record_history()
        self.carry_out(effects)

    def _record_history(self) -> None:
        """Record the core's history. For a lost agent the end of its last stream is added."""
        while self.state.history.entries:
            what, about = self.state.history.entries.popleft()
            if what == "agent gone":
                ended = self._lasting.streams.take_end_reason(str(about.get("agent", "")))
                about = about if ended is None else {**about, "stream": ended}
            self._lasting.journal.record_event(self.rev, what, about)

    def receive_messages(self, messages: list[Up], errors: Mapping[str, str]) -> None:
        """Process an agent's messages. `errors`: of its units."""
        self._errors.update(
            {unit: error for unit, error in errors.items() if unit in self.state.sets.by_unit}
        )
        for message in messages:
            self.step_core(core.Received(message))

    def confirm_stored(self, token: int) -> None:
        """Note that a round's write is committed."""
        for one in self._round.confirm_durable(token):
            self.step_core(core.Persisted(one))
            self._commands.confirm_durable(one)

    # effects of the core

    def carry_out(self, effects: list[LeaderDecision]) -> None:
        for effect in effects:
            if self._closed:
                return  # the term ended with an effect before this one
            self._apply_decision(effect)

    def _apply_decision(self, effect: LeaderDecision) -> None:
        match effect:
            case SendMessage(agent, message):
                self._round.add_message(agent, message)
            case Persist(token, changes):
                self._round.add_records(token, changes)
                self._commands.add_stored_token(token)
            case Fence(unit, uid, assignment):
                self._lasting.parts.queue_fence(self.rev, unit, uid, assignment)
            case Alarm(what, about):
                self._lasting.journal.record_event(self.rev, what, {"about": about}, alarm=True)
                self._lasting.counts[f"alarm.{what}"] += 1
            case Refused(_, problem):
                self._commands.refuse_command(problem)
            case ReloadEnded():
                self._reload_ended(effect)
            case core.StepDown(why):
                self._commands.end_with_term()
                self._step_down(why)

    def _reload_ended(self, ended: ReloadEnded) -> None:
        """Answer the reload, like any command, once its records are durable."""
        asked, self._reload = self._reload, None
        if not ended.refused:
            self._lasting.parts.adopt_config(ended.digest)
        if asked is None:
            return
        if ended.refused:
            asked.answer.fail_with(CommandRefusedError(*ended.refused))
        else:
            self._commands.await_durable(ended.token, asked)
        self._record_command(asked)

    def finish_round(self) -> None:
        """End the round: write its records to the log in one write, then send its messages."""
        write = self._round.take_write()
        if write is not None:
            self._lasting.parts.append_changes(self.rev, *write)
        for agent, messages in self._round.take_messages().items():
            taken = self._lasting.parts.push_messages(agent, messages) if self.may_speak() else 0
            self._lasting.counts["owner.unsent"] += len(messages) - taken

    # operators

    def execute_command(self, asked: CommandRequested) -> None:
        """Execute an operator's command. The command is answered when its records are durable, or at once if
        it stores none."""
        if not self.may_speak():
            asked.answer.fail_with(NotLeaderError(None))
            return
        if isinstance(asked.command, Reload) and self._reload is None:
            self._reload = asked  # answered when it has ended, because agents are asked first
            self.step_core(asked.command)
            return
        self._commands.carry_out(asked, lambda: self.step_core(asked.command))
        self._record_command(asked)
        # a long pause ended with this message, or the command was Resign (already answered)
        if not self.may_speak():
            asked.answer.fail_with(NotLeaderError(None))
        self._commands.settle_command(asked)

    def _record_command(self, asked: CommandRequested) -> None:
        command, journal = asked.command, self._lasting.journal
        about: dict[str, object] = {"command": type(command).__name__.lower(), "by": asked.by or "unknown"}
        about |= {name: getattr(command, name) for name in type(command).__match_args__}
        refused = asked.answer.refused
        if refused is None:
            journal.record_event(self.rev, "command accepted", about)
        else:
            journal.record_event(self.rev, "command refused", {**about, "why": refused})

    def build_view(self, leader: LeaderView | None, now: float, counters: dict[str, int]) -> View:
        streams = self._lasting.streams.get_counters()
        return build_leader_view(
            self.state, leader, now, errors=self._errors, streams=streams, counters=counters
        )
