"""The owner's machine: turns what comes in into the core's events, for as long as a term of this coordinator lasts (server.terms.term).

The control machine of the batch system, so never in two threads at once, and nothing in it is locked. Between two terms it
keeps nothing but who leads: a new term begins from the durable records and from what agents report.

An error in the core ends the term and not the process: the state is thrown away, another coordinator (or this one) begins
anew from the records, and agents go on meanwhile as long as their leases last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import structlog

from coordinator.control.codec import Candidate
from coordinator.control.events import Elected, Lost, NewLeader, RecordsCommitted, WriteConfirmed
from coordinator.core import records as durable
from coordinator.core.owner import owner
from coordinator.core.owner import state as core
from coordinator.core.owner.state import OwnerConfig
from coordinator.server.batch_handler import AgentMachine, Mail
from coordinator.server.operators.api import LeaderView, NotLeaderError, View
from coordinator.server.operators.journal import Journal
from coordinator.server.requests import (
    CatalogueRead,
    CommandAsked,
    FenceDone,
    Joined,
    Left,
    TickDue,
    ViewAsked,
)
from coordinator.server.terms.leadership import Leadership
from coordinator.server.terms.term import Lasting, Outside, OwnerTerm

log = structlog.get_logger("coordinator")


class OwnerMachine:
    """`leadership`, `journal` and `view_took` (seconds) may be read from any thread. `clock`: monotonic seconds; `wall`: seconds since 1970.
    `term`: None while another leads, or nobody."""

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
        self.term: OwnerTerm | None = None
        self.leadership = Leadership(config.owner_lease, clock, outside.set_leader)
        self.journal = Journal(wall)
        self._lasting = Lasting(outside, clock, self.journal)
        self.counts = self._lasting.counts
        self.view_took = 0.0

    def is_stopped(self) -> bool:
        return False

    def handle(self, message: object) -> None:
        """Take in one message; an error ends the term."""
        try:
            self._handle(message)
        except Exception:
            log.exception("owner failed", message=type(message).__name__)
            self.counts["owner.failures"] += 1
            if isinstance(message, CommandAsked | ViewAsked):
                message.answer.fail(NotLeaderError(None))
            self._give_up("internal error")

    def has_decided(self) -> bool:
        """Tell whether `end` has something to do."""
        return self.term is not None and self.term.has_decided

    def end(self) -> None:
        """The round is over; an error ends the term."""
        try:
            if self.term is not None:
                self.term.hand_on()
        except Exception:
            log.exception("owner failed", message="end of a round")
            self.counts["owner.failures"] += 1
            self._give_up("internal error")

    def _handle(self, message: object) -> None:
        early, term = self.leadership.confirmed, self.term
        if term is not None and early.rev == term.rev and early.at > term.state.confirmed_at:
            term.step(core.Confirmed(early.at))
        match message:
            case Mail(machine):
                self._mail(machine)
            case TickDue():
                self._tick()
            case CommandAsked():
                self._command(message)
            case ViewAsked(answer):
                began = time.perf_counter()
                view = self._view()
                self.view_took = time.perf_counter() - began
                answer.give(view)
            case Joined(machine):
                self._lasting.streams.joined(machine)
            case Left(machine, why):
                self._lasting.streams.left(machine, why)
            case Elected(rev, records, at):
                self._begin(rev, records, at)
            case NewLeader(rev, candidate):
                self._led_by(rev, candidate)
            case _ if self.term is not None:
                self._of_term(self.term, message)

    def _of_term(self, term: OwnerTerm, message: object) -> None:
        """Take in what is about one term; about another one it is late."""
        match message:
            case RecordsCommitted(rev, token) if rev == term.rev:
                term.stored(token)
            case WriteConfirmed(rev, at) if rev == term.rev:
                term.step(core.Confirmed(at))
            case FenceDone(rev, unit, assignment) if rev == term.rev:
                term.step(core.Fenced(unit, assignment))
            case CatalogueRead(rev, catalogue) if rev == term.rev:
                term.step(catalogue)
            case Lost(rev, why) if rev == term.rev:
                self._over(why)

    # terms

    def _begin(self, rev: int, records: Mapping[str, durable.Record], claimed_at: float | None) -> None:
        me = self._me()
        now, floor = self._clock(), int(self._wall() * 1000)
        self.leadership.change(LeaderView(rev, me.name, me.address, me.rest, am_i=True))
        state, effects = owner.begin(
            me.name, rev, records, self._config, now, floor=floor, claimed_at=claimed_at
        )
        if self.term is not None:
            self.term.close()
        self.term = term = OwnerTerm(state, self._lasting, self._give_up)
        about = {"name": me.name, "units": len(state.sets), "agents": len(state.members)}
        self.journal.tell(rev, "elected", about)
        self._outside.leading(rev)
        term.carry_out(effects)

    def _led_by(self, rev: int, candidate: Candidate | None) -> None:
        if self.term is not None and self.term.rev == rev:
            return
        if candidate is None:
            self.leadership.change(None, rev)
        else:
            self.leadership.change(LeaderView(rev, candidate.name, candidate.address, candidate.rest))

    def _give_up(self, why: str) -> None:
        """Give the term up by ourselves."""
        if self.term is not None:
            self._over(why, "resigned")
            self._outside.resign(why)

    def _over(self, why: str, what: str = "term lost") -> None:
        if self.term is None:
            return
        term, self.term = self.term, None
        self.journal.tell(term.rev, what, {"why": why})
        term.close()
        self._outside.leading(0)
        leader = self.leadership.leader
        if leader is not None and leader.am_i:  # else a later one is known already
            self.leadership.change(None, term.rev)

    # what comes in

    def _mail(self, machine: AgentMachine) -> None:
        messages, errors = machine.take()
        if self.term is None:
            self.counts["owner.not leading"] += len(messages)
        else:
            self.term.received(messages, errors)

    def _tick(self) -> None:
        began = time.perf_counter()
        try:
            if self.term is not None:
                self.term.step(core.Tick())
        finally:
            self._outside.ticked(time.perf_counter() - began)

    def _command(self, asked: CommandAsked) -> None:
        if self.term is None:
            asked.answer.fail(NotLeaderError(self.leadership.named(self._clock())))
        else:
            self.term.command(asked)

    def _view(self) -> View:
        now = self._clock()
        leader = self.leadership.named(now)
        counters = {**self._outside.counters(), **self.counts}
        if self.term is None:
            return View(leader, counters=counters)
        if now >= self.term.state.confirmed_at + self._config.owner_lease:
            return View(None, counters=counters)  # a later one may have shown more than this one knows
        return self.term.view(leader, now, counters)
