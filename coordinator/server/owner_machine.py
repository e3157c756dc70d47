"""The owner's machine: turns what comes in into the core's events, and carries out the core's effects.

The control machine of the batch system, so never in two threads at once, and nothing in it is locked. Between two terms it
keeps nothing but who leads: a new term begins from the durable records and from what agents report.

What it decides in a round of the batch system is one write of the log (server.round), and `end` hands it on.

An error in the core ends the term and not the process: the state is thrown away, another coordinator (or this one) begins
anew from the records, and agents go on meanwhile as long as their leases last.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from coordinator.control.codec import Candidate, Change
from coordinator.control.events import Elected, Heard, Lost, NewLeader, RecordsCommitted, WriteConfirmed
from coordinator.core.messages import Down
from coordinator.core.owner import owner
from coordinator.core.owner import state as core
from coordinator.core.owner.state import (
    Alarm,
    Effect,
    Event,
    Fence,
    OwnerConfig,
    OwnerState,
    Persist,
    Refused,
    Send,
)
from coordinator.server.batch_handler import AgentMachine, Mail
from coordinator.server.operators.api import CommandRefusedError, LeaderView, NotLeaderError, View
from coordinator.server.operators.journal import Journal
from coordinator.server.operators.view import build
from coordinator.server.requests import (
    CatalogueRead,
    CommandAsked,
    FenceDone,
    Joined,
    Left,
    TickDue,
    ViewAsked,
)
from coordinator.server.round import Round
from coordinator.transport.events import LeaderInfo

log = structlog.get_logger("coordinator")


class Outside(Protocol):
    """What the owner's machine does to the world; nothing of it blocks."""

    def push(self, agent: str, messages: list[Down]) -> int:
        """Return how many of them were taken."""

    def append(self, rev: int, token: int, changes: tuple[Change, ...]) -> None: ...

    def resign(self, why: str) -> None: ...

    def fence(self, rev: int, unit: str, uid: str, epoch: int) -> None: ...

    def set_leader(self, leader: LeaderInfo) -> None: ...

    def leading(self, rev: int) -> None:
        """A term of ours begins; 0: it is over."""

    def ticked(self, took: float) -> None: ...

    def counters(self) -> dict[str, int]: ...


class OwnerMachine:
    """`leader` and `view_took` (seconds) may be read from any thread. `clock`: monotonic seconds; `wall`: seconds since 1970."""

    def __init__(
        self,
        me: Callable[[], Candidate],
        config: OwnerConfig,
        outside: Outside,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._me, self._config, self._outside, self._clock, self._wall = me, config, outside, clock, wall
        self.leader: LeaderView | None = None
        self._since = 0.0
        self._state: OwnerState | None = None
        self._round = Round()
        self._streams: dict[str, AgentMachine] = {}
        self._errors: dict[str, str] = {}
        self._commands: dict[int, CommandAsked] = {}
        self._asked: CommandAsked | None = None
        self._confirmed = WriteConfirmed(0, 0.0)
        self._heard = Heard(0, 0.0)
        self.view_took = 0.0
        self.counts: Counter[str] = Counter()
        self.journal = Journal(wall)
        self._ended: dict[str, str] = {}

    def is_stopped(self) -> bool:
        return False

    def confirmed(self, event: WriteConfirmed) -> None:
        """From any thread, ahead of the messages that wait: an owner that is busy is not one that may have been replaced."""
        self._confirmed = event

    def heard(self, event: Heard) -> None:
        """From any thread: another's term is alive."""
        self._heard = event

    def handle(self, message: object) -> None:
        """Take in one message; an error ends the term."""
        try:
            self._handle(message)
        except Exception:
            log.exception("owner failed", message=type(message).__name__)
            self.counts["owner.failures"] += 1
            if isinstance(message, CommandAsked | ViewAsked):
                message.answer.fail(NotLeaderError(None))
            self._end("internal error")

    def has_decided(self) -> bool:
        """Whether `end` has something to do."""
        return bool(self._round)

    def end(self) -> None:
        """The round is over: what it decided becomes one write of the log, and then what it says goes out; an error ends the term."""
        try:
            self._hand_on()
        except Exception:
            log.exception("owner failed", message="end of a round")
            self.counts["owner.failures"] += 1
            self._end("internal error")

    def _hand_on(self) -> None:
        if self._state is None:
            return
        write = self._round.write()
        if write is not None:
            self._outside.append(self._state.rev, *write)
        for agent, messages in self._round.speak().items():
            taken = self._outside.push(agent, messages) if self._speaks() else 0
            self.counts["owner.unsent"] += len(messages) - taken

    def _handle(self, message: object) -> None:
        early = self._confirmed
        if self._state is not None and self._is(early.rev) and early.at > self._state.confirmed_at:
            self._step(core.Confirmed(early.at))
        match message:
            case Mail(machine):
                self._mail(machine)
            case TickDue():
                self._tick()
            case RecordsCommitted(rev, token) if self._is(rev):
                self._stored(token)
            case WriteConfirmed(rev, at) if self._is(rev):
                self._step(core.Confirmed(at))
            case FenceDone(rev, unit, epoch) if self._is(rev):
                self._step(core.Fenced(unit, epoch))
            case CatalogueRead(rev, catalogue) if self._is(rev):
                self._step(catalogue)
            case CommandAsked():
                self._command(message)
            case ViewAsked(answer):
                began = time.perf_counter()
                view = self._view()
                self.view_took = time.perf_counter() - began
                answer.give(view)
            case Joined(machine):
                self._streams[machine.agent] = machine
            case Left(machine, why):
                self._left(machine, why)
            case Elected(rev, records, at):
                self._begin(rev, records, at)
            case NewLeader(rev, candidate):
                self._led_by(rev, candidate)
            case Lost(rev, why) if self._is(rev):
                self._over(why)

    def _is(self, rev: int) -> bool:
        return self._state is not None and self._state.rev == rev

    # terms

    def _begin(self, rev: int, records: Mapping[str, core.Record], claimed_at: float | None) -> None:
        me = self._me()
        now, floor = self._clock(), int(self._wall() * 1000)
        self._lead(LeaderView(rev, me.name, me.address, me.rest, am_i=True))
        self._state, effects = owner.begin(
            me.name, rev, records, self._config, now, floor=floor, claimed_at=claimed_at
        )
        units, agents = len(self._state.sets), len(self._state.members)
        self.journal.tell(rev, "elected", {"name": me.name, "units": units, "agents": agents})
        self._outside.leading(rev)
        self._carry_out(effects)

    def _led_by(self, rev: int, candidate: Candidate | None) -> None:
        if self._is(rev):
            return
        if candidate is None:
            self._lead(None, rev)
        else:
            self._lead(LeaderView(rev, candidate.name, candidate.address, candidate.rest))

    def _lead(self, leader: LeaderView | None, rev: int = 0) -> None:
        """Tell agents (and operators, by `leader`) whom to ask. Streams end unless it is this coordinator."""
        self.leader, self._since = leader, self._clock()
        if leader is None:
            self._outside.set_leader(LeaderInfo(rev))
        else:
            self._outside.set_leader(LeaderInfo(leader.rev, leader.address, leader.rest, leader.am_i))

    def _end(self, why: str) -> None:
        """Give the term up by ourselves."""
        if self._state is not None:
            self._over(why, "resigned")
            self._outside.resign(why)

    def _over(self, why: str, what: str = "term lost") -> None:
        if self._state is None:
            return
        self.journal.tell(self._state.rev, what, {"why": why})
        rev, self._state, self._round = self._state.rev, None, Round()
        self._errors.clear()
        waiting, self._commands = self._commands, {}
        for asked in waiting.values():
            asked.answer.fail(NotLeaderError(None))
        self._outside.leading(0)
        if self.leader is not None and self.leader.am_i:  # else a later one is known already
            self._lead(None, rev)

    # events of the core

    def _step(self, event: Event) -> None:
        if self._state is None:
            return
        self._state, effects = owner.step(self._state, event, self._clock())
        self._tell(self._state)
        self._carry_out(effects)

    def _tell(self, state: OwnerState) -> None:
        """Say what happened in the core; of an agent that is gone also how its last stream ended."""
        while state.told:
            what, about = state.told.popleft()
            agent = str(about.get("agent", ""))
            if what == "agent gone" and agent in self._ended:
                about = {**about, "stream": self._ended.pop(agent)}
            self.journal.tell(state.rev, what, about)

    def _mail(self, machine: AgentMachine) -> None:
        messages, errors = machine.take()
        if self._state is None:
            self.counts["owner.not leading"] += len(messages)
            return
        self._errors.update({unit: error for unit, error in errors.items() if unit in self._state.sets})
        for message in messages:
            self._step(core.Received(message))

    def _tick(self) -> None:
        began = time.perf_counter()
        try:
            self._step(core.Tick())
        finally:
            self._outside.ticked(time.perf_counter() - began)

    def _left(self, machine: AgentMachine, why: str) -> None:
        if self._streams.get(machine.agent) is machine:
            del self._streams[machine.agent]
            self._ended[machine.agent] = why
        log.info("agent's stream ended", agent=machine.agent, why=why)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self._state is None:
                return  # the term ended with an effect before this one
            self._effect(self._state, effect)

    def _effect(self, state: OwnerState, effect: Effect) -> None:
        match effect:
            case Send(agent, message):
                self._round.say(agent, message)
            case Persist(token, changes):
                self._round.store(token, changes)
                if self._asked is not None:
                    self._commands[token] = self._asked
            case Fence(unit, uid, epoch):
                self._outside.fence(state.rev, unit, uid, epoch)
            case Alarm(what, about):
                self.journal.tell(state.rev, what, {"about": about}, alarm=True)
                self.counts[f"alarm.{what}"] += 1
            case Refused(_, why):
                if self._asked is not None:
                    self._asked.answer.fail(CommandRefusedError(why))
            case core.StepDown(why):
                self._step_down(why)

    def _step_down(self, why: str) -> None:
        if self._asked is not None:
            self._asked.answer.give(None)
        self._end(why)

    # operators

    def _command(self, asked: CommandAsked) -> None:
        """Carry out a command; it is answered when what it has stored is durable, at once if it stores nothing."""
        if not self._speaks():
            asked.answer.fail(NotLeaderError(self.leader_now(self._clock()) if self._state is None else None))
            return
        self._asked = asked
        rev = self._state.rev if self._state is not None else 0
        try:
            self._step(asked.command)
        finally:
            self._asked = None
        self._note(asked, rev)
        if not self._speaks():  # a long pause ended with this very message (or it was to resign: answered)
            asked.answer.fail(NotLeaderError(None))
        if not any(waiting is asked for waiting in self._commands.values()):
            asked.answer.give(None)

    def _note(self, asked: CommandAsked, rev: int) -> None:
        command = asked.command
        about: dict[str, object] = {"command": type(command).__name__.lower(), "by": asked.by or "unknown"}
        about |= {name: getattr(command, name) for name in type(command).__match_args__}
        refused = asked.answer.refused
        if refused is None:
            self.journal.tell(rev, "command accepted", about)
        else:
            self.journal.tell(rev, "command refused", {**about, "why": refused})

    def _speaks(self) -> bool:
        """Whether this owner may still say something: its claim was confirmed not long ago."""
        return self._state is not None and not self._state.silent

    def _stored(self, token: int) -> None:
        """A round's write is committed."""
        for one in self._round.durable(token):
            self._step(core.Persisted(one))
            self._durable(one)

    def _durable(self, token: int) -> None:
        asked = self._commands.pop(token, None)
        if asked is not None and not any(waiting is asked for waiting in self._commands.values()):
            asked.answer.give(None)

    def _view(self) -> View:
        now = self._clock()
        leader = self.leader_now(now)
        counters = {**self._outside.counters(), **self.counts}
        if self._state is None:
            return View(leader, counters=counters)
        if now >= self._state.confirmed_at + self._config.owner_lease:
            return View(None, counters=counters)  # a later one may have shown more than this one knows
        streams = {name: machine.counters() for name, machine in self._streams.items()}
        return build(self._state, leader, now, errors=self._errors, streams=streams, counters=counters)

    def leader_now(self, now: float) -> LeaderView | None:
        """Return who leads, with the time since then; None where nothing was heard of it for a lease. From any thread.

        So two coordinators never name two leaders for longer than that: the one that no longer leads has not been confirmed
        since, and of one that is dead nobody hears.
        """
        leader = self.leader
        if leader is None or now >= self._alive_at(leader) + self._config.owner_lease:
            return None
        since = round(now - self._since, 3)
        return LeaderView(leader.rev, leader.name, leader.address, leader.rest, since, leader.am_i)

    def _alive_at(self, leader: LeaderView) -> float:
        """Return when `leader` last was known to lead: its own term when it was confirmed, another's when it was heard."""
        if not leader.am_i:
            return self._heard.at if self._heard.rev == leader.rev else float("-inf")
        confirmed = self._confirmed
        return max(self._since, confirmed.at if confirmed.rev == leader.rev else self._since)
