"""One term of this coordinator as the owner: the core's state, and what the core's effects do. Nothing of it outlives the term."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.control.codec import Change
from coordinator.core.messages import Down, Up
from coordinator.core.owner import owner
from coordinator.core.owner import state as core
from coordinator.core.owner.state import (
    Alarm,
    Effect,
    Event,
    Fence,
    OwnerState,
    Persist,
    Refused,
    Reload,
    ReloadEnded,
    Send,
)
from coordinator.server.operators.api import CommandRefusedError, LeaderView, NotLeaderError, View
from coordinator.server.operators.journal import Journal
from coordinator.server.operators.view import build
from coordinator.server.requests import CommandAsked
from coordinator.server.round import Round
from coordinator.server.terms.pending_commands import PendingCommands
from coordinator.server.terms.streams import Streams
from coordinator.transport.events import LeaderInfo


class Outside(Protocol):
    """The actions of the owner's machine on the world; none of them blocks."""

    def push(self, agent: str, messages: list[Down]) -> int:
        """Return how many of them were taken."""

    def append(self, rev: int, token: int, changes: tuple[Change, ...]) -> None: ...

    def resign(self, why: str) -> None: ...

    def fence(self, rev: int, unit: str, uid: str, assignment: int) -> None: ...

    def configure(self, digest: str) -> None:
        """Take the configuration of this digest, which the file was last found to hold, as the one in force."""

    def set_leader(self, leader: LeaderInfo) -> None: ...

    def leading(self, rev: int) -> None:
        """A term of ours begins; 0: it is over."""

    def ticked(self, took: float) -> None: ...

    def counters(self) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True)
class Lasting:
    """The parts of a coordinator that outlast its terms. `clock`: monotonic seconds."""

    outside: Outside
    clock: Callable[[], float]
    journal: Journal
    streams: Streams = field(default_factory=Streams)
    counts: Counter[str] = field(default_factory=Counter)


class OwnerTerm:
    """One term of the owner: the core's decisions in a round of the batch system are one write of the log (server.round), and
    `hand_on` makes it.

    `step_down(why)`: is called when the core gives the term up, and closes it. A closed term does nothing any more.
    """

    def __init__(self, state: OwnerState, lasting: Lasting, step_down: Callable[[str], None]) -> None:
        self.state = state
        self.rev = state.rev
        self._closed = False
        self._lasting, self._step_down = lasting, step_down
        self._round = Round()
        self._commands = PendingCommands()
        self._reload: CommandAsked | None = None
        self._errors: dict[str, str] = {}

    def speaks(self) -> bool:
        """Tell whether this owner may still say something: its claim was confirmed not long ago."""
        return not self._closed and not self.state.silent

    @property
    def has_decided(self) -> bool:
        return bool(self._round)

    def close(self) -> None:
        self._closed = True
        self._commands.close()
        if self._reload is not None:
            self._reload.answer.fail(NotLeaderError(None))

    # events of the core

    def step(self, event: Event) -> None:
        if self._closed:
            return
        self.state, effects = owner.step(self.state, event, self._lasting.clock())
        self._tell()
        self.carry_out(effects)

    def _tell(self) -> None:
        """Say what happened in the core; of an agent that is gone also how its last stream ended."""
        while self.state.told:
            what, about = self.state.told.popleft()
            if what == "agent gone":
                ended = self._lasting.streams.last_words(str(about.get("agent", "")))
                about = about if ended is None else {**about, "stream": ended}
            self._lasting.journal.tell(self.rev, what, about)

    def received(self, messages: list[Up], errors: Mapping[str, str]) -> None:
        """Take in what an agent says. `errors`: of its units."""
        self._errors.update({unit: error for unit, error in errors.items() if unit in self.state.sets})
        for message in messages:
            self.step(core.Received(message))

    def stored(self, token: int) -> None:
        """A round's write is committed."""
        for one in self._round.durable(token):
            self.step(core.Persisted(one))
            self._commands.durable(one)

    # effects of the core

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self._closed:
                return  # the term ended with an effect before this one
            self._effect(effect)

    def _effect(self, effect: Effect) -> None:
        match effect:
            case Send(agent, message):
                self._round.say(agent, message)
            case Persist(token, changes):
                self._round.store(token, changes)
                self._commands.stored(token)
            case Fence(unit, uid, assignment):
                self._lasting.outside.fence(self.rev, unit, uid, assignment)
            case Alarm(what, about):
                self._lasting.journal.tell(self.rev, what, {"about": about}, alarm=True)
                self._lasting.counts[f"alarm.{what}"] += 1
            case Refused(_, why):
                self._commands.refused(why)
            case ReloadEnded():
                self._reload_ended(effect)
            case core.StepDown(why):
                self._commands.done()
                self._step_down(why)

    def _reload_ended(self, ended: ReloadEnded) -> None:
        """It is answered, as a command is, once what it has stored is durable."""
        asked, self._reload = self._reload, None
        if ended.refused is None:
            self._lasting.outside.configure(ended.digest)
        if asked is None:
            return
        if ended.refused is not None:
            asked.answer.fail(CommandRefusedError(ended.refused))
        else:
            self._commands.await_durable(ended.token, asked)
        self._note(asked)

    def hand_on(self) -> None:
        """The round is over: what it decided becomes one write of the log, and then what it says goes out."""
        write = self._round.write()
        if write is not None:
            self._lasting.outside.append(self.rev, *write)
        for agent, messages in self._round.speak().items():
            taken = self._lasting.outside.push(agent, messages) if self.speaks() else 0
            self._lasting.counts["owner.unsent"] += len(messages) - taken

    # operators

    def command(self, asked: CommandAsked) -> None:
        """Carry out a command; it is answered when what it has stored is durable, at once if it stores nothing."""
        if not self.speaks():
            asked.answer.fail(NotLeaderError(None))
            return
        if isinstance(asked.command, Reload) and self._reload is None:
            self._reload = asked  # it is answered when it has ended: agents are asked before
            self.step(asked.command)
            return
        self._commands.carry_out(asked, lambda: self.step(asked.command))
        self._note(asked)
        if not self.speaks():  # a long pause ended with this very message (or it was to resign: answered)
            asked.answer.fail(NotLeaderError(None))
        self._commands.settle(asked)

    def _note(self, asked: CommandAsked) -> None:
        command, journal = asked.command, self._lasting.journal
        about: dict[str, object] = {"command": type(command).__name__.lower(), "by": asked.by or "unknown"}
        about |= {name: getattr(command, name) for name in type(command).__match_args__}
        refused = asked.answer.refused
        if refused is None:
            journal.tell(self.rev, "command accepted", about)
        else:
            journal.tell(self.rev, "command refused", {**about, "why": refused})

    def view(self, leader: LeaderView | None, now: float, counters: dict[str, int]) -> View:
        streams = self._lasting.streams.counters()
        return build(self.state, leader, now, errors=self._errors, streams=streams, counters=counters)
