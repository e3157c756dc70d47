"""Leader election: one candidate as a pure state machine.

```
  FOLLOWING ──quiet for long──▶ CLAIMING ──committed──▶ CLAIMED ──read back, newest──▶ LEADING
      ▲                            │ failed               │ overtaken, too late           │ a write failed, overtaken,
      └──── Discarded ────────── FENCED ◀─────────────────┴───────────────────────────────┘ asked to resign
```
A claim is a transaction of the one producer id that all candidates share: beginning it fences every earlier producer, so that
of two candidates at once the later one wins and the other finds out at its next commit. Nothing here is needed for safety
but that rule of Kafka's; patience and jitter only keep candidates from disturbing a leader that is well.

`quiet_since` is set anew by every message of the leader, by the first answer of the topic after it had given none, and by a pause
of this very process: none of them proves that the leader is gone. All times are this process's monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class ElectionPhase(Enum):
    FOLLOWING = "following"
    CLAIMING = "claiming"
    CLAIMED = "claimed"
    LEADING = "leading"
    FENCED = "fenced"  # the producer is of no more use; waits until it is thrown away


@dataclass(frozen=True, slots=True)
class ElectionConfig:
    """Seconds. `patience`: without a message of the leader. `pause`: between two steps, longer means this process stood
    still. `read_back`: for reading one's own claim."""

    patience: float = 2.5
    pause: float = 2.0
    read_back: float = 10.0


@dataclass(frozen=True, slots=True)
class Election:
    """`rev`: of our claim, once committed. `newest`: of the newest claim read; `vacant`: its owner resigned, or there is
    none; `readable`: nothing was met that only a newer version understands. `jitter`: waited on top of everything.
    `reached`: the topic's last answer was one. `not_before`: one that has just failed or given up lets the others go first."""

    quiet_since: float
    stepped_at: float
    jitter: float
    phase: ElectionPhase = ElectionPhase.FOLLOWING
    rev: int = 0
    newest: int = 0
    vacant: bool = True
    readable: bool = True
    reached: bool = True
    not_before: float = float("-inf")
    deadline: float = 0.0


@dataclass(frozen=True, slots=True)
class Observed:
    """Messages were read; all of it is of the fold after them. `alive`: some of them came from the newest claim's owner.
    `fresh`: they were read behind the topic's end, so not from a past in which that owner may have died."""

    newest: int
    vacant: bool
    readable: bool = True
    alive: bool = True
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Reachable:
    """The topic answers, and has been read to its end at least once."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The topic does not answer: silence says nothing about the leader."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Our claim is committed at this offset."""

    rev: int


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """A claim or a write of ours failed, or its outcome is not known: the producer is never used again."""

    why: str


@dataclass(frozen=True, slots=True)
class ResignAsked:
    why: str


@dataclass(frozen=True, slots=True)
class Discarded:
    """The producer is thrown away. `jitter`: for the next time, drawn anew."""

    jitter: float


ElectionEvent = Observed | Reachable | Unreachable | Claimed | WriteFailed | ResignAsked | Discarded


@dataclass(frozen=True, slots=True)
class StartClaim:
    """Make a producer, fence the others, commit a claim; then Claimed or Failed."""


@dataclass(frozen=True, slots=True)
class Elect:
    """This candidate leads, with the records read so far."""

    rev: int


@dataclass(frozen=True, slots=True)
class Lose:
    """The term is over; what it still had to write is dropped."""

    why: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Tell the others that the term is given up; they need not wait."""

    rev: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Throw the producer away; then Discarded."""

    why: str


ElectionEffect = StartClaim | Elect | Lose | GiveUp | Discard
Stepped = tuple[Election, tuple[ElectionEffect, ...]]


def begin_election(now: float, jitter: float) -> Election:
    return Election(now, now, jitter)


def step_election(state: Election, event: ElectionEvent, now: float, config: ElectionConfig) -> Stepped:
    """Return the election after `event` at `now`, and what is to be done, in order."""
    if now - state.stepped_at > config.pause:
        state = replace(state, quiet_since=now)
    state = replace(state, stepped_at=now)
    match event:
        case Observed(newest, vacant, readable, alive):
            state = replace(state, newest=newest, vacant=vacant, readable=readable)
            return _settle_claim(replace(state, quiet_since=now) if alive else state, now)
        case Reachable():
            return _handle_reachable(state, now, config)
        case Unreachable():
            return _settle_claim(replace(state, reached=False), now)
        case Claimed(rev) if state.phase is ElectionPhase.CLAIMING:
            deadline = now + config.read_back
            return _settle_claim(replace(state, phase=ElectionPhase.CLAIMED, rev=rev, deadline=deadline), now)
        case WriteFailed(why) if state.phase not in {ElectionPhase.FOLLOWING, ElectionPhase.FENCED}:
            return _fence_candidate(state, why)
        case ResignAsked(why) if state.phase is ElectionPhase.LEADING:
            return _resign_term(state, why)
        case Discarded(jitter) if state.phase is ElectionPhase.FENCED:
            later = now + config.patience + jitter
            return replace(state, phase=ElectionPhase.FOLLOWING, jitter=jitter, not_before=later), ()
    return state, ()


def _handle_reachable(state: Election, now: float, config: ElectionConfig) -> Stepped:
    if not state.reached:
        state = replace(state, reached=True, quiet_since=now)
    if state.phase is not ElectionPhase.FOLLOWING:
        return _settle_claim(state, now)
    patience = state.jitter if state.vacant else config.patience + state.jitter
    if not state.readable or now < max(state.not_before, state.quiet_since + patience):
        return state, ()
    return replace(state, phase=ElectionPhase.CLAIMING), (StartClaim(),)


def _settle_claim(state: Election, now: float) -> Stepped:
    """Follow from what was read what becomes of a claim or a term of ours."""
    if state.phase not in {ElectionPhase.CLAIMED, ElectionPhase.LEADING}:
        return state, ()
    if state.newest > state.rev:
        return _fence_candidate(state, f"another coordinator has claimed at {state.newest}")
    if not state.readable:
        return _fence_candidate(state, "a newer version has written to the control topic")
    if state.phase is ElectionPhase.CLAIMED and state.newest == state.rev:
        return replace(state, phase=ElectionPhase.LEADING), (Elect(state.rev),)
    if state.phase is ElectionPhase.CLAIMED and now >= state.deadline:
        return _fence_candidate(state, "the claim could not be read back in time")
    return state, ()


def _fence_candidate(state: Election, why: str) -> Stepped:
    lost: tuple[ElectionEffect, ...] = (Lose(why),) if state.phase is ElectionPhase.LEADING else ()
    return replace(state, phase=ElectionPhase.FENCED, rev=0), (*lost, Discard(why))


def _resign_term(state: Election, why: str) -> Stepped:
    return replace(state, phase=ElectionPhase.FENCED, rev=0), (Lose(why), GiveUp(state.rev), Discard(why))
