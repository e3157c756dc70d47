"""Decides which unit of a slot is applied next. Does no I/O; times are monotonic seconds.

At most one attempt runs at a unit. Units with work take turns: one that has had its turn waits until the
others have had theirs. A unit's records come in one of two ways:

- It is *followed*: the pipeline's reader, which all followed topics share, brings its new records.
- It *reads by itself*: each of its attempts reads a range of the topic with a consumer of its own. So a
  backlog does not delay the records of other topics.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.slots.messages import ServeUnit, UnitPlace, UnitReleased

MAX_WAITING_RECORDS, MAX_WAITING_BYTES = 5_000, 8 << 20
"""The most records of a followed unit, and bytes in them, that wait for its next attempt; with more it reads
by itself."""
NEARLY_UP_TO_DATE = 500
"""A unit that reads by itself is followed when at most this many records are left."""
LOST_PAUSE_S = 0.2
"""Pause before a unit reads by itself what the reader cannot bring: the reader's error may last."""
NO_PROGRESS_PAUSE_S = 1.0
"""Pause after an attempt that has not moved the unit although records are left."""


@dataclass(frozen=True, slots=True)
class FollowTopic:
    """Let the pipeline's reader bring the records of a topic from `offset` on."""

    place: UnitPlace
    offset: int
    number: int
    """Comes with the records, so that those of an earlier FollowTopic are recognised."""


@dataclass(frozen=True, slots=True)
class LeaveTopic:
    """Let the pipeline's reader bring no more records of a topic."""

    place: UnitPlace


SlotEffect = FollowTopic | LeaveTopic | UnitReleased


@dataclass(slots=True)
class ServedUnit:
    """A unit of this slot."""

    serve: ServeUnit
    next: int
    """The offset of the first record that no attempt has had."""
    end: int
    """The topic's next offset, as last seen."""
    interval_s: float = 0.0
    """Least time from one attempt to the next in seconds, without a backlog."""
    follow_number: int | None = None
    """The number of its FollowTopic; None: it reads by itself."""
    records: RecordSlice = field(default_factory=list)
    """Records from `next` on that the reader has brought."""
    size: int = 0
    """The bytes in them."""
    waits_since: float | None = None
    """Since when it has waited for its turn; None: it does not."""
    running: bool = False
    releasing: bool = False
    """Whether no further attempt is to begin, and the running one is to end soon."""
    not_before: float = 0.0
    """When its next attempt may begin."""
    trial_at: float | None = None
    """When an attempt is due although no record has come; see Report.trial_in_s."""

    @property
    def place(self) -> UnitPlace:
        return self.serve.place

    @property
    def left(self) -> int:
        """The number of records that no attempt has had, about."""
        return max(0, self.end - self.next)

    # -- records

    def follow(self, number: int) -> FollowTopic:
        self.follow_number = number
        return FollowTopic(self.place, self.next, number)

    def leave(self) -> list[SlotEffect]:
        """Read by itself from now on: what the reader has brought is dropped, and read again."""
        if self.follow_number is None:
            return []
        self._drop_records()
        self.follow_number = None
        return [LeaveTopic(self.place)]

    def _drop_records(self) -> None:
        self.records, self.size = [], 0

    def add_records(self, records: RecordSlice) -> bool:
        """Add records that the reader has brought; return whether these are too many."""
        self.records += records
        self.size += sum(len(value) for _, value in records if value is not None)
        self.end = max(self.end, records[-1][0] + 1)
        return len(self.records) > MAX_WAITING_RECORDS or self.size > MAX_WAITING_BYTES

    # -- turns

    def has_work(self, now: float) -> bool:
        """Return whether an attempt is due."""
        if self.running or self.releasing or now < self.not_before:
            return False
        is_trial_due = self.trial_at is not None and now >= self.trial_at
        return self.follow_number is None or bool(self.records) or is_trial_due

    def find_due_time(self) -> float | None:
        """Return when an attempt will be due without a further event; None: it is not known."""
        if self.running or self.releasing:
            return None
        if self.follow_number is None or self.records:
            return self.not_before
        return None if self.trial_at is None else max(self.trial_at, self.not_before)

    def begin_wait(self, now: float) -> None:
        """Wait for a turn."""
        self.waits_since = now

    def end_wait(self) -> None:
        self.waits_since = None

    def begin_turn(self) -> Turn:
        """Begin an attempt."""
        records = None if self.follow_number is None else self.records
        self._drop_records()
        self.running = True
        self.expect_trial(None)
        return Turn(self, self.next, records)

    def end_turn(self, turn: Turn, report: Report, end: int, now: float) -> None:
        """Note what an attempt has applied. `end`: the topic's next offset, 0 if it was not read."""
        self.running = False
        self.end = max(self.end, end, report.offset + 1)
        self.next = max(turn.start, report.offset + 1)
        is_stuck = self.next == turn.start and self.left > 0 and not turn.records
        interval_s = self.interval_s if self.left <= NEARLY_UP_TO_DATE else 0.0  # a backlog does not wait
        self.delay_until(now + (NO_PROGRESS_PAUSE_S if is_stuck else interval_s))

    def delay_until(self, when: float) -> None:
        """Begin no attempt before `when`."""
        self.not_before = max(self.not_before, when)

    def expect_trial(self, when: float | None) -> None:
        """Set when an attempt is due although no record has come; None: never."""
        self.trial_at = when

    def begin_release(self) -> bool:
        """Begin no further attempt; return whether that is new."""
        is_new, self.releasing = not self.releasing, True
        return is_new


@dataclass(frozen=True, slots=True)
class Turn:
    """One attempt at a unit: over `records` if it is followed, otherwise over what it reads by itself."""

    unit: ServedUnit
    start: int
    records: RecordSlice | None


class SlotSchedule:
    """The units of one slot. Not thread-safe."""

    def __init__(self) -> None:
        self._units: dict[UnitPlace, ServedUnit] = {}
        self._waiting: deque[ServedUnit] = deque()
        self._timed: dict[UnitPlace, float] = {}
        """When units are due that wait for a time."""
        self._follows = 0

    @property
    def units(self) -> list[ServedUnit]:
        return list(self._units.values())

    # -- commands

    def add_unit(self, serve: ServeUnit, now: float, interval_s: float = 0.0) -> list[SlotEffect]:
        """Begin to apply a unit. `interval_s`: see ServedUnit. An attempt under its former fencing token may
        still be running.
        """
        former = self.release_unit(serve.place)
        unit = ServedUnit(serve, serve.offset + 1, max(serve.end, serve.offset + 1), interval_s)
        self._units[unit.place] = unit
        unit.expect_trial(now if serve.trial else None)
        out = [*former, *self._follow_if_up_to_date(unit, 0)]
        self._queue_if_due(unit, now)
        return out

    def release_unit(self, place: UnitPlace) -> list[SlotEffect]:
        """Begin no further attempt at a unit. The result contains UnitReleased unless an attempt runs."""
        unit = self._units.get(place)
        if unit is None or not unit.begin_release():
            return []
        left = unit.leave()
        return left if unit.running else [*left, self._forget(unit)]

    # -- records

    def add_records(
        self, place: UnitPlace, number: int, records: RecordSlice, now: float
    ) -> list[SlotEffect]:
        """Add records that the reader has brought after the FollowTopic of `number`, unless that no longer
        holds.
        """
        unit = self._units.get(place)
        if unit is None or unit.follow_number != number:
            return []
        left = unit.leave() if unit.add_records(records) else []
        self._queue_if_due(unit, now)
        return left

    def lose_records(self, place: UnitPlace, number: int, now: float) -> list[SlotEffect]:
        """Let a unit read by itself, because the reader cannot bring its records: its next attempt finds out
        why.
        """
        unit = self._units.get(place)
        if unit is None or unit.follow_number != number:
            return []
        left = unit.leave()
        unit.delay_until(now + LOST_PAUSE_S)
        self._queue_if_due(unit, now)
        return left

    # -- turns

    def take_turn(self, now: float) -> Turn | None:
        """Return the next attempt, which the caller runs; None if none is due."""
        self.queue_timed(now)
        while self._waiting:
            unit = self._waiting.popleft()
            unit.end_wait()
            if self._units.get(unit.place) is not unit:
                continue
            if unit.has_work(now):
                return unit.begin_turn()
            self._queue_if_due(unit, now)  # what it waited for has been lost meanwhile, and it is due later
        return None

    def end_turn(self, turn: Turn, report: Report, end: int, now: float) -> list[SlotEffect]:
        """Record the result of an attempt. `end`: the topic's next offset, 0 if it was not read."""
        unit = turn.unit
        unit.end_turn(turn, report, end, now)
        if self._units.get(unit.place) is not unit:  # it was given to this slot under a later fencing token
            return [_build_release(unit)]
        if report.state != "ok":
            return [*unit.leave(), self._forget(unit, failed=True)]
        # An attempt may end before its last record. The unit then reads the rest by itself.
        is_whole = not turn.records or report.offset >= turn.records[-1][0]
        left = [] if is_whole else unit.leave()
        if unit.releasing:
            return [*left, self._forget(unit)]
        unit.expect_trial(now + report.trial_in_s if report.trial_in_s else None)
        out = [*left, *self._follow_if_up_to_date(unit)]
        self._queue_if_due(unit, now)
        return out

    def _follow_if_up_to_date(self, unit: ServedUnit, margin: int = NEARLY_UP_TO_DATE) -> list[SlotEffect]:
        if unit.follow_number is not None or unit.left > margin:
            return []
        self._follows += 1
        return [unit.follow(self._follows)]

    def _forget(self, unit: ServedUnit, *, failed: bool = False) -> UnitReleased:
        del self._units[unit.place]
        self._timed.pop(unit.place, None)
        return _build_release(unit, failed=failed)

    # -- time

    def _queue_if_due(self, unit: ServedUnit, now: float) -> None:
        if unit.waits_since is not None:
            return
        if unit.has_work(now):
            unit.begin_wait(now)
            self._waiting.append(unit)
        elif (due := unit.find_due_time()) is not None:
            self._timed[unit.place] = due

    def queue_timed(self, now: float) -> None:
        """Let the units that are due by time wait for their turn."""
        for place in [place for place, due in self._timed.items() if due <= now]:
            del self._timed[place]
            self._queue_if_due(self._units[place], now)

    def find_next_due(self) -> float | None:
        """Return when a unit will be due that waits for a time; None: none does."""
        return min(self._timed.values(), default=None)

    @property
    def has_waiting(self) -> bool:
        """True if a unit waits for its turn."""
        return bool(self._waiting)

    def measure_wait(self, now: float) -> float:
        """Return for how many seconds the first unit has waited for its turn; 0.0: none waits."""
        since = self._waiting[0].waits_since if self._waiting else None
        return 0.0 if since is None else now - since


def _build_release(unit: ServedUnit, *, failed: bool = False) -> UnitReleased:
    run, topic = unit.place
    trial = unit.trial_at is not None
    return UnitReleased(run, topic, unit.serve.epoch, unit.next - 1, unit.end, trial, failed)
