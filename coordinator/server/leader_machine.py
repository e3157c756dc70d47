"""The leader's state machine: it turns messages into events of the core while a term of this coordinator
lasts (server.terms.term).

It is the control machine of the batch system, so it never runs in two threads at once, and its state
needs no lock. Between two terms it keeps only which coordinator leads: a new term begins from the
durable records and the agents' reports.

An error in the core ends the term and not the process: the state is discarded, another coordinator (or
this one) begins again from the records, and agents go on meanwhile as long as their leases last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import structlog

from coordinator.control.codec import Candidate
from coordinator.control.events import Elected, Lost, NewLeader, RecordsCommitted, WriteConfirmed
from coordinator.core import records as durable
from coordinator.core.leader import state as core
from coordinator.core.leader import steps
from coordinator.core.leader.invariants import explain_restriction
from coordinator.core.leader.state import LeaderConfig
from coordinator.server.agent_machine import AgentMachine, MailWaiting
from coordinator.server.operators.api import LeaderView, NotLeaderError, View
from coordinator.server.operators.condition import RESTRICTION_REMEDY
from coordinator.server.operators.journal import Journal
from coordinator.server.parts import CoordinatorParts
from coordinator.server.requests import (
    CommandRequested,
    FenceDone,
    InventoryRead,
    StreamJoined,
    StreamLeft,
    TickDue,
    ViewRequested,
)
from coordinator.server.terms.leadership import Leadership
from coordinator.server.terms.term import CoordinatorContext, LeaderTerm

log = structlog.get_logger("coordinator")


class LeaderMachine:
    """The leader's state machine; it also runs while another coordinator leads (`term` is None then).

    `leadership`, `journal` and `view_took` (seconds) may be read from any thread. `clock`: monotonic
    seconds; `wall`: seconds since 1970.
    """

    def __init__(
        self,
        me: Callable[[], Candidate],
        config: LeaderConfig,
        parts: CoordinatorParts,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._me, self._config, self._parts, self._clock, self._wall = me, config, parts, clock, wall
        self.term: LeaderTerm | None = None
        self.leadership = Leadership(config.leader_lease, clock, parts.set_leader)
        self.journal = Journal(wall)
        self._lasting = CoordinatorContext(parts, clock, self.journal)
        self._has_seen_violation = False
        self.counts = self._lasting.counts
        self.view_took = 0.0

    def is_stopped(self) -> bool:
        return False

    def handle_message(self, message: object) -> None:
        """Process one message. An error ends the term."""
        try:
            self._dispatch_message(message)
        except Exception:
            log.exception("message of the leader failed", message=type(message).__name__)
            self.counts["owner.failures"] += 1
            if isinstance(message, CommandRequested | ViewRequested):
                message.answer.fail_with(NotLeaderError(None))
            self._give_up("internal error")

    def list_restrictions(self) -> tuple[str, ...]:
        """Return for each unit that is left as it is why, and what to do. May be called from any thread."""
        term = self.term
        units = term.state.sets.restricted if term is not None else {}
        return tuple(
            f"unit {unit}: {explain_restriction(why)}: {RESTRICTION_REMEDY}"
            for unit, why in sorted(units.items())
        )

    def has_decided(self) -> bool:
        """True if `end_round` has anything to do."""
        return self.term is not None and self.term.has_decided

    def end_round(self) -> None:
        """End the round. An error ends the term."""
        try:
            if self.term is not None:
                self.term.finish_round()
        except Exception:
            log.exception("message of the leader failed", message="end of a round")
            self.counts["owner.failures"] += 1
            self._give_up("internal error")

    def _dispatch_message(self, message: object) -> None:
        early, term = self.leadership.confirmed, self.term
        if term is not None and early.rev == term.rev and early.at > term.state.claim.confirmed_at:
            term.step_core(core.Confirmed(early.at))
        match message:
            case MailWaiting(machine):
                self._receive_mail(machine)
            case TickDue():
                self._run_tick()
            case CommandRequested():
                self._execute_command(message)
            case ViewRequested(answer):
                began = time.perf_counter()
                view = self._build_view()
                self.view_took = time.perf_counter() - began
                answer.give_value(view)
            case StreamJoined(machine):
                self._lasting.streams.add_stream(machine)
            case StreamLeft(machine, why):
                self._lasting.streams.remove_stream(machine, why)
            case Elected(rev, records, at):
                self._begin_term(rev, records, at)
            case NewLeader(rev, candidate):
                self._set_leader(rev, candidate)
            case _ if self.term is not None:
                self._handle_in_term(self.term, message)

    def _handle_in_term(self, term: LeaderTerm, message: object) -> None:
        """Process a message that belongs to a term. If that is another term, the message is late and
        ignored.
        """
        match message:
            case RecordsCommitted(rev, token) if rev == term.rev:
                term.confirm_stored(token)
            case WriteConfirmed(rev, at) if rev == term.rev:
                term.step_core(core.Confirmed(at))
            case FenceDone(rev, unit, assignment) if rev == term.rev:
                term.step_core(core.Fenced(unit, assignment))
            case InventoryRead(rev, inventory) if rev == term.rev:
                term.step_core(inventory)
            case Lost(rev, why) if rev == term.rev:
                self._end_term(why)

    # terms

    def _begin_term(
        self, rev: int, records: Mapping[str, durable.DurableRecord], claimed_at: float | None
    ) -> None:
        me = self._me()
        now, floor = self._clock(), int(self._wall() * 1000)
        self.leadership.change_leader(LeaderView(rev, me.name, me.address, me.rest, am_i=True))
        state, effects = steps.begin_leader_term(
            me.name,
            rev,
            records,
            self._config,
            now,
            floor=floor,
            claimed_at=claimed_at,
            after_violation=self._has_seen_violation,
        )
        if self.term is not None:
            self.term.close()
        self.term = term = LeaderTerm(state, self._lasting, self._give_up)
        about = {"name": me.name, "units": len(state.sets.by_unit), "agents": len(state.members.by_name)}
        self.journal.record_event(rev, "elected", about)
        self._parts.set_term(rev)
        term.carry_out(effects)

    def _set_leader(self, rev: int, candidate: Candidate | None) -> None:
        if self.term is not None and self.term.rev == rev:
            return
        if candidate is None:
            self.leadership.change_leader(None, rev)
        else:
            self.leadership.change_leader(LeaderView(rev, candidate.name, candidate.address, candidate.rest))

    def _give_up(self, why: str) -> None:
        """Resign from the term."""
        if self.term is not None:
            self._end_term(why, "resigned")
            self._parts.resign_term(why)

    def _end_term(self, why: str, what: str = "term lost") -> None:
        if self.term is None:
            return
        term, self.term = self.term, None
        self._has_seen_violation = bool(term.state.sets.restricted)
        self.journal.record_event(term.rev, what, {"why": why})
        term.close()
        self._parts.set_term(0)
        leader = self.leadership.leader
        if leader is not None and leader.am_i:  # otherwise a later leader is known already
            self.leadership.change_leader(None, term.rev)

    # messages

    def _receive_mail(self, machine: AgentMachine) -> None:
        messages, errors = machine.take_messages()
        if self.term is None:
            self.counts["owner.not leading"] += len(messages)
        else:
            self.term.receive_messages(messages, errors)

    def _run_tick(self) -> None:
        began = time.perf_counter()
        try:
            if self.term is not None:
                self.term.step_core(core.Tick())
        finally:
            self._parts.finish_tick(time.perf_counter() - began)

    def _execute_command(self, asked: CommandRequested) -> None:
        if self.term is None:
            asked.answer.fail_with(NotLeaderError(self.leadership.find_leader(self._clock())))
        else:
            self.term.execute_command(asked)

    def _build_view(self) -> View:
        now = self._clock()
        leader = self.leadership.find_leader(now)
        counters = {**self._parts.get_counters(), **self.counts}
        if self.term is None:
            return View(leader, counters=counters)
        if now >= self.term.state.claim.confirmed_at + self._config.leader_lease:
            return View(None, counters=counters)  # a later leader may already have shown more progress
        return self.term.build_view(leader, now, counters)
