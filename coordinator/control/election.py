"""Leader election: one candidate as a pure state machine.

```
  FOLLOWING ──silence──▶ CLAIMING ──committed──▶ CLAIMED ──read back, newest──▶ LEADING
      ▲                     │ failed                │ overtaken, too late          │ a write failed,
      └──── Discarded ──── FENCED ◀─────────────────┴──────────────────────────────┘ overtaken, asked to
                                                                            resign, or the topic is lost
```
A claim is a transaction of the single producer id that all candidates share. To begin it fences every
earlier producer, so if two candidates claim at once, the later one wins and the other finds out at its
next commit. Safety depends on this rule of Kafka alone; patience and jitter only keep candidates from
disturbing a healthy leader.

`quiet_since` is set again by every message of the leader, by the first answer of the topic after an
outage, and by a pause of this process, because silence after an outage or a pause does not prove that
the leader is lost. All times are this process's monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from schemas.problems import Problem


class ElectionPhase(Enum):
    FOLLOWING = "following"
    CLAIMING = "claiming"
    CLAIMED = "claimed"
    LEADING = "leading"
    FENCED = "fenced"  # the producer cannot be used any more; waits until it is discarded


@dataclass(frozen=True, slots=True)
class ElectionConfig:
    """The settings of an election, in seconds."""

    patience: float = 2.5
    """A candidate claims after so long without a message of the leader."""
    pause: float = 2.0
    """A longer time between two steps means that this process was paused."""
    read_back: float = 10.0
    """The time to read back one's own claim."""


@dataclass(frozen=True, slots=True)
class Election:
    """The state of a candidate."""

    quiet_since: float
    """When the leader last showed a sign of life, or could not be observed."""
    stepped_at: float
    jitter: float
    """Waited in addition to each patience."""
    phase: ElectionPhase = ElectionPhase.FOLLOWING
    rev: int = 0
    """The term of this candidate's claim, once committed."""
    newest: int = 0
    """The term of the newest claim that was read."""
    vacant: bool = True
    """Whether the leader of that term has resigned, or there is no claim."""
    readable: bool = True
    """Whether no message requires a newer version."""
    reached: bool = True
    """Whether the topic answered last time."""
    not_before: float = float("-inf")
    """When this candidate may claim again: after a failure or resignation it lets the others go first."""
    deadline: float = 0.0
    """When its own claim must have been read back."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Messages were read. The fields describe the fold after them."""

    newest: int
    vacant: bool
    readable: bool = True
    alive: bool = True
    """Whether some of them came from the leader of the newest claim."""
    fresh: bool = True
    """Whether they were read after the topic's end was reached, so that they are not from a time since
    which that leader may have died.
    """


@dataclass(frozen=True, slots=True)
class Reachable:
    """The topic answers, and has been read to its end at least once."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The topic does not answer, so silence is no evidence about the leader."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The claim of this candidate is committed at this offset."""

    rev: int


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """A claim or write of this candidate failed, or its outcome is not known. The producer is never used
    again.
    """

    why: str


@dataclass(frozen=True, slots=True)
class TopicLost:
    """The control topic is not the one that was read. It is the last event about the topic, so this
    candidate never claims again.
    """

    problem: Problem


@dataclass(frozen=True, slots=True)
class ResignAsked:
    why: str


@dataclass(frozen=True, slots=True)
class Discarded:
    """The producer is discarded. `jitter` is a new random value for the next attempt."""

    jitter: float


ElectionEvent = (
    Observed | Reachable | Unreachable | TopicLost | Claimed | WriteFailed | ResignAsked | Discarded
)


@dataclass(frozen=True, slots=True)
class StartClaim:
    """Open a producer, fence the others, commit a claim; then report Claimed or WriteFailed."""


@dataclass(frozen=True, slots=True)
class Elect:
    """This candidate leads, with the records read so far."""

    rev: int


@dataclass(frozen=True, slots=True)
class Lose:
    """The term has ended; its remaining writes are dropped."""

    why: str
    is_resignation: bool = False
    """Whether this candidate was asked to give it up."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Announce that the term is given up, so that the others need not wait."""

    rev: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Discard the producer, then report Discarded."""

    why: str


ElectionEffect = StartClaim | Elect | Lose | GiveUp | Discard
Stepped = tuple[Election, tuple[ElectionEffect, ...]]


def begin_election(now: float, jitter: float) -> Election:
    return Election(now, now, jitter)


def step_election(state: Election, event: ElectionEvent, now: float, config: ElectionConfig) -> Stepped:
    """Return the election after `event` at `now`, and what has to be done, in order."""
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
        case TopicLost(problem) if state.phase not in {ElectionPhase.FOLLOWING, ElectionPhase.FENCED}:
            return _fence_candidate(state, problem.what)
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
    """Decide on this candidate's claim or term by what has been read."""
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
    return replace(state, phase=ElectionPhase.FENCED, rev=0), (
        Lose(why, is_resignation=True),
        GiveUp(state.rev),
        Discard(why),
    )
