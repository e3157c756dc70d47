"""Decides the consequence of an error for the unit in which it occurred. Only that unit is affected,
whatever the error's class.

Every failed operation on a unit is classified here, in slots (consumer.slots) and in the agent's own
operations (consumer.process.unit_operations). Only errors of the process itself belong to no single unit.
Without I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

from consumer.attempt.reports import NO_FIGURES, AttemptOutcome, CopyNeed, LaneFigures, Report
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import AttemptProgress
from consumer.errors import (
    AttemptLostError,
    ConsumerError,
    CopyNeededError,
    FencedError,
    RefusedError,
    TargetConfigError,
    TransientError,
    UnitStoppedError,
)
from schemas.errors import SchemaError
from schemas.problems import Problem, encode_problem


@dataclass(frozen=True, slots=True)
class Trouble:
    """The consequence of an error for a unit.

    `state`: the unit's next state. `fault`: an error of rowlock itself, which is logged with its
    traceback. `copy`: see Report.
    """

    state: AttemptOutcome
    problem: Problem
    fault: bool = False
    copy: CopyNeed | None = None


#: The first matching class decides. "behind" is retried; "stopped" needs a person.
_STATES: tuple[tuple[type[BaseException], AttemptOutcome], ...] = (
    (AttemptLostError, "behind"),
    (FencedError, "fenced"),
    (TransientError, "behind"),
    (UnitStoppedError, "stopped"),
    (TargetConfigError, "stopped"),
    (RefusedError, "stopped"),
    (ConsumerError, "stopped"),
    (SchemaError, "stopped"),
    (MemoryError, "behind"),
    (ConnectionError, "behind"),
    (TimeoutError, "behind"),
)


def classify_error(topic: str, error: Exception) -> Trouble:
    """Return the consequence of `error` for the unit of `topic`.

    An unforeseen error stops it: a retry would hide it.
    """
    state = next((state for kind, state in _STATES if isinstance(error, kind)), None)
    if state is None:
        return Trouble("stopped", _describe_fault(topic, error), fault=True)
    if isinstance(error, CopyNeededError):
        return Trouble(
            state, error.problem, copy=CopyNeed(-1 if error.after is None else error.after, error.cause)
        )
    if isinstance(error, ConsumerError | SchemaError):
        return Trouble(state, error.problem)
    return Trouble(state, Problem(f"{topic}: {_describe_error(error)}"), fault=True)


@dataclass(slots=True)
class AttemptFigures:
    """Counts of events and rows; see Report."""

    applied: int = 0
    dropped: int = 0
    held: int = 0
    displaced: int = 0
    lanes: LaneFigures = NO_FIGURES

    def add_counts(self, *, applied: int = 0, dropped: int = 0, held: int = 0, displaced: int = 0) -> None:
        self.applied += applied
        self.dropped += dropped
        self.held += held
        self.displaced += displaced

    def add_lanes(self, figures: LaneFigures) -> None:
        """Add what lanes have done."""
        self.lanes = self.lanes.merge(figures)


def build_attempt_report(
    spec: UnitSpec,
    progress: AttemptProgress,
    figures: AttemptFigures,
    trouble: Trouble,
    passed: int = 0,
    *,
    trial_in_s: float = 0.0,
) -> Report:
    """Return the report of an attempt. `passed`: records that its reader dropped.

    `trial_in_s`: see Report.
    """
    lowest = progress.lowest if progress.rows else None
    return Report(
        topic=spec.unit.topic,
        state=trouble.state,
        epoch=spec.epoch,
        offset=lowest.offset if lowest else -1,
        applied=figures.applied,
        dropped=figures.dropped + passed,
        held=figures.held,
        displaced=figures.displaced,
        commit_ts_ms=lowest.commit_ts_ms if lowest else 0,
        position=lowest.position if lowest else None,
        message=encode_problem(trouble.problem),
        copy=trouble.copy,
        lanes=figures.lanes,
        trial_in_s=trial_in_s,
    )


def _describe_fault(topic: str, error: Exception) -> Problem:
    return Problem(
        f"{topic}: internal error of rowlock ({_describe_error(error)}); the other tables continue",
        "report it with the traceback in the agent's log; rowlock retries after every change, and "
        "every few minutes",
    )


def _describe_error(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
