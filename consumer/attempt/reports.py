"""Reports of attempts at units."""

from __future__ import annotations

from typing import Literal

import msgspec

from consumer.attempt.durations import NO_DURATIONS, Durations
from schemas.wire.position import Position

AttemptOutcome = Literal["ok", "behind", "stopped", "fenced"]
ReportState = AttemptOutcome | Literal["waiting"]


class CopyNeed(msgspec.Struct, frozen=True):
    """The copy that a unit needs; see consumer.errors.CopyNeededError.

    `after`: the copy must begin after this offset of the topic.
    """

    after: int = msgspec.field(name="after")
    cause: str = msgspec.field(name="cause")


class LaneFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Figures of lanes: what they have written, and how they waited for each other's commits."""

    upserted: int = msgspec.field(name="upserted", default=0)
    """Rows written; several events of one key in a transaction are one row."""
    deleted: int = msgspec.field(name="deleted", default=0)
    """Rows deleted by events."""
    lock_waits: int = msgspec.field(name="lock_waits", default=0)
    lock_wait_ms: int = msgspec.field(name="lock_wait_ms", default=0)
    """Lanes that wait at the same time count each."""
    lock_chain: int = msgspec.field(name="lock_chain", default=0)
    """The most lanes that have waited one for the next."""
    open_quarantine: int | None = msgspec.field(name="open_quarantine", default=None)
    """Events in quarantine at the end; None: not known."""
    resolved: int = msgspec.field(name="resolved", default=0)
    """Events that have left the quarantine because their row was written, or is deleted at the source."""
    transactions: Durations = msgspec.field(name="transactions", default=NO_DURATIONS)
    """Times of the transactions that have written events, from their begin to their commit."""
    visible: Durations = msgspec.field(name="visible", default=NO_DURATIONS)
    """Times of events, from the commit at the source to the commit in the target. All events of a transaction
    in the target count as old as its first one."""

    def merge(self, later: LaneFigures) -> LaneFigures:
        """Return these figures and `later` ones together."""
        return LaneFigures(
            self.upserted + later.upserted,
            self.deleted + later.deleted,
            self.lock_waits + later.lock_waits,
            self.lock_wait_ms + later.lock_wait_ms,
            max(self.lock_chain, later.lock_chain),
            self.open_quarantine if later.open_quarantine is None else later.open_quarantine,
            self.resolved + later.resolved,
            self.transactions.merge(later.transactions),
            self.visible.merge(later.visible),
        )


NO_FIGURES = LaneFigures()
"""Of lanes that have done nothing."""


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one attempt at a unit, or its state meanwhile.

    `state`: "ok"; "behind": a transient error outlasted the task's retries, and the progress is at the
    last commit; "stopped": a person must act; "fenced": another attempt or fencing token owns the unit;
    "waiting": the attempt goes on, and waits for what `message` names; without a message it no longer does.
    `epoch`: the attempt's fencing token. `offset`: of the lowest lane. `applied`, `dropped`, `held`:
    events of this attempt, the last ones quarantined. `displaced`: rows of other keys that made room for
    them (drift). `commit_ts_ms`: source commit time of the last applied event (0: unknown). `position`:
    source position of the lowest lane. `copy`: the copy that would resolve a stop. `lanes`: of this attempt.
    `trial_in_s`: seconds after which quarantined keys are to be tried although no further record has come,
    or passed ranges of a key sweep compared; 0: none waits for that. `left`: records of the topic that no
    attempt has had, about; None: not counted.
    """

    topic: str = msgspec.field(name="topic")
    state: ReportState = msgspec.field(name="state")
    epoch: int = msgspec.field(name="epoch")
    offset: int = msgspec.field(name="offset")
    applied: int = msgspec.field(name="applied", default=0)
    dropped: int = msgspec.field(name="dropped", default=0)
    held: int = msgspec.field(name="held", default=0)
    displaced: int = msgspec.field(name="displaced", default=0)
    commit_ts_ms: int = msgspec.field(name="commit_ts_ms", default=0)
    position: Position | None = msgspec.field(name="position", default=None)
    message: str = msgspec.field(name="message", default="")
    copy: CopyNeed | None = msgspec.field(name="copy", default=None)
    lanes: LaneFigures = msgspec.field(name="lanes", default=NO_FIGURES)
    trial_in_s: float = msgspec.field(name="trial_in_s", default=0.0)
    left: int | None = msgspec.field(name="left", default=None)
