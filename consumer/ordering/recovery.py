"""Decides which quarantined keys are tried again, in which order, and what becomes of their entries.
Without I/O.

While a key has an entry, all later changes of its fold queue in the quarantine. So the newest entry of a key
is its last event up to the unit's progress, and the image after it is the key's final row. A key is
*untried* as long as the target was not asked for that image: its newest entry then only queues
(`QUEUED_AFTER`). The entries alone show this, so an attempt that dies leaves the rest to the next one.

A key that meets a unique value of another row is untried again as soon as the unit has applied a later
event, because that may have given up the value, and as soon as another key has recovered. The reason in its
newest entry has the offset of its last trial. The end of a copy or key sweep makes every key untried: the
rows that it has deleted may have had their unique values. So does a change of the target table by rowlock,
which may accept the row then.

An untried key is tried once. If the target accepts the image, all entries of the key leave. If not, the
newest entry gets the target's reason, so the key is tried again only after its next event. A key keeps its
first entry (since when, and why) and its newest; the ones in between can never be needed again.

A key is not tried within `TRIAL_INTERVAL_S` of a refusal: one that changes a thousand times a second and
never fits would take more of the target than the rows of the table. The entries show this, too: an entry
with the target's reason was written when the target refused. So the limit holds in whichever process the
next attempt runs. Keys that wait for a unique value are often tried in vain, so of them no more than
`WAITING_KEYS_PER_INTERVAL` are tried in that time. An attempt that leaves a key untried reports after how
long it is to be tried, and without further records the apply process runs an attempt then: the newest image
is always tried at last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from consumer.errors import RefusedError, UniqueViolationError
from consumer.ordering.model import AgedEntry, ChangeId, QuarantineEntry, parse_entry_key
from consumer.ordering.reasons import (
    QUEUED_AFTER,
    find_trial_offset,
    forget_trial,
    format_refusal,
    is_queued,
    is_waiting,
)
from schemas.table.model import Key

MAX_TRIAL_KEYS = 500
"""Keys that one transaction tries."""
TRIAL_INTERVAL_S = 1.0
"""Least time in seconds from a refusal of a key to its next trial."""
WAITING_KEYS_PER_INTERVAL = 10
"""Keys waiting for a unique value that are tried in `TRIAL_INTERVAL_S`; if more wait, each is tried less
often."""
FAILED_TRIAL_PAUSE_S = 10.0
"""Seconds after which a key is tried without further records if its trial failed for now (a locked row)."""
MAX_SECONDS = 0.5
"""Seconds after which no further trial begins."""
TRIAL_LOCK_WAIT_S = 1.0
"""Seconds that a trial waits for a row that another session has locked. The table's other rows wait, too."""
PARTS_AFTER_FAILURE = 25
"""Parts into which a trial is divided that failed for now. A locked row makes each trial with it wait, and
halves would be nine such trials of `MAX_TRIAL_KEYS` keys, where these parts are two."""
MAX_FAILURES = 6
"""Trials that may fail for now, each after `TRIAL_LOCK_WAIT_S` or more: one locked row of `MAX_TRIAL_KEYS`
takes four."""


@dataclass(frozen=True, slots=True)
class HeldKey:
    """An exact key with its quarantine entries, in event order."""

    entries: tuple[QuarantineEntry, ...]

    @property
    def first(self) -> QuarantineEntry:
        return self.entries[0]

    @property
    def newest(self) -> QuarantineEntry:
        return self.entries[-1]

    @property
    def ids(self) -> list[ChangeId]:
        return [(entry.offset, entry.part) for entry in self.entries]

    @property
    def place(self) -> ChangeId:
        """The key's last event."""
        return self.newest.offset, self.newest.part

    def is_untried(self, level: int) -> bool:
        """Return whether the target was not asked for the key's row since the lanes are at the offset
        `level`, although it might accept it.
        """
        if is_waiting(self.newest):
            return find_trial_offset(self.newest) < level
        return is_queued(self.newest)

    def is_due(self, interval_s: float, elapsed_s: float = 0.0) -> bool:
        """Return whether the last refusal of the key is at least `interval_s` ago, or is not known.

        `elapsed_s`: the time since the entries were read. If the target's clock goes back, none is delayed.
        """
        refused = (entry for entry in self.entries if isinstance(entry, AgedEntry) and not is_queued(entry))
        since = min((entry.age_ms for entry in refused if entry.age_ms >= 0), default=None)
        return since is None or since / 1000 + elapsed_s >= interval_s


def list_untried_keys(
    entries: Iterable[QuarantineEntry], level: int, after: int | None = None
) -> list[HeldKey]:
    """Return the untried keys, in the order of their last events. `level`: the offset of the lowest lane.

    `after`: leaves out keys whose last event has no higher offset: a statement without row events may have
    removed their rows.
    """
    keys = [key for key in list_held_keys(entries) if key.is_untried(level)]
    return [key for key in keys if after is None or key.newest.offset > after]


def select_due_keys(keys: Sequence[HeldKey], interval_s: float, elapsed_s: float = 0.0) -> list[HeldKey]:
    """Return which of the untried keys may be tried now.

    `interval_s`: least time from a refusal of a key to its next trial. `elapsed_s`: see `HeldKey.is_due`.
    """
    longer_s = interval_s * _count_waiting_intervals(keys)
    return [key for key in keys if key.is_due(longer_s if is_waiting(key.newest) else interval_s, elapsed_s)]


def choose_pause(keys: Sequence[HeldKey]) -> float:
    """Return after how many seconds the first of `keys`, which stay untried, is to be tried; 0: there is
    none.
    """
    if all(is_waiting(key.newest) for key in keys):
        return TRIAL_INTERVAL_S * _count_waiting_intervals(keys) if keys else 0.0
    return TRIAL_INTERVAL_S


def _count_waiting_intervals(keys: Sequence[HeldKey]) -> float:
    """Return after how many intervals a key is tried that waits for a unique value."""
    return max(1.0, sum(is_waiting(key.newest) for key in keys) / WAITING_KEYS_PER_INTERVAL)


def list_keys_tried_in_vain(
    entries: Collection[QuarantineEntry], table: str, level: int
) -> list[QuarantineEntry]:
    """Return the newest entries of the keys of `table` ("schema.name") that wait for a unique value and were
    tried at the offset `level`, as entries that make them untried: another key recovers there, and may give
    up the value.
    """

    def was_in_vain(entry: QuarantineEntry) -> bool:
        return is_waiting(entry) and find_trial_offset(entry) >= level

    if not any(map(was_in_vain, entries)):
        return []
    newest = (key.newest for key in list_held_keys(entries) if key.newest.table == table)
    return [forget_trial(entry) for entry in newest if was_in_vain(entry)]


def list_keys_to_retry(
    entries: Iterable[QuarantineEntry], table: str, at: int, cause: str
) -> list[QuarantineEntry]:
    """Return the newest entries of the keys of `table` ("schema.name") that are not untried, as entries that
    make them untried after the offset `at`. `cause`: what ended there.
    """
    newest = (key.newest for key in list_held_keys(entries) if key.newest.table == table)
    return [
        msgspec.structs.replace(entry, error=f"{QUEUED_AFTER} {at} ({cause}), before: {entry.error}")
        for entry in newest
        if not is_queued(entry)
    ]


def list_held_keys(entries: Iterable[QuarantineEntry]) -> list[HeldKey]:
    """Return the keys of `entries`, in the order of their last events."""
    held: dict[tuple[str, Key], list[QuarantineEntry]] = {}
    for entry in sorted(entries, key=lambda each: (each.offset, each.part)):
        held.setdefault((entry.table, parse_entry_key(entry.key)), []).append(entry)
    return sorted((HeldKey(tuple(of)) for of in held.values()), key=lambda key: key.place)


@dataclass(frozen=True, slots=True)
class Trial:
    """Keys whose final images one transaction writes."""

    keys: tuple[HeldKey, ...]
    displacing: bool = False
    """Whether rows of other keys that have one of their unique values are displaced."""
    last: bool = False
    """Whether it failed before: it is not tried a third time."""
    isolating: bool = False
    """Whether it is part of a trial that failed for now: if it is left out, the next drain begins again with
    the same failure."""
    joint: bool = False
    """Whether its keys wait for each other's unique values: each was refused, or will be, and all may be
    accepted together."""


class RecoveryPlan:
    """The trials of some untried keys. Ask `choose_trial`, and report its outcome, until it returns None.

    Keys that wait for a unique value are mostly tried in vain, so each of them has a trial of its own, after
    the others.

    A trial that the target refuses is halved by event order; one that fails for now (a locked row) is divided
    into more parts. A single key that fails for now is tried once more, after the others, and then stays
    untried. A key that meets a unique value of another row is tried again once another key has recovered,
    because that may have given up the value. If keys wait for each other, they are tried together. Only when
    nothing else recovers, and with `conflicts: replace`, the other row is displaced.
    """

    def __init__(self, keys: Sequence[HeldKey], *, replace: bool) -> None:
        """`replace`: whether the pipeline has `conflicts: replace`."""
        self._replace = replace
        self._waiting = [
            *(
                Trial(tuple(wave[at : at + MAX_TRIAL_KEYS]))
                for wave in _split_by_fold([key for key in keys if is_queued(key.newest)])
                for at in range(0, len(wave), MAX_TRIAL_KEYS)
            ),
            *(Trial((key,)) for key in keys if not is_queued(key.newest)),
        ]
        self._blocked: list[tuple[HeldKey, RefusedError]] = []
        self._is_room_possible = False
        self._is_any_decided = False
        self.recovered: list[HeldKey] = []
        self.failures = 0
        """Trials that failed for now."""
        self._failed: list[Trial] = []
        self._cycles: set[tuple[HeldKey, ...]] = set()
        self._refused: list[tuple[HeldKey, RefusedError]] = []

    def choose_trial(self) -> Trial | None:
        """Return the next trial; None: every key has recovered, is refused, or failed twice."""
        if not self._waiting:
            self._waiting, self._failed = self._failed, []
        if not self._waiting:
            self._wait_for_blocked_keys()
        return self._waiting[0] if self._waiting else None

    def _wait_for_blocked_keys(self) -> None:
        blocked, self._blocked = self._blocked, []
        if not self._replace and not self._is_room_possible:
            self._refused += blocked
            return
        displacing, self._is_room_possible = not self._is_room_possible, False
        self._waiting = [Trial((key,), displacing) for key, _ in blocked]

    def may_end(self, trial: Trial, seconds: float) -> bool:
        """Return whether `trial` and the rest should stay untried for now, after `seconds` of trials.

        Until then the table's other rows wait. At least one key is decided before, or a slow target would
        never accept any: the next drain would begin again with the same refused trial.
        """
        if self.failures >= MAX_FAILURES:
            return True
        return seconds > MAX_SECONDS and self._is_any_decided and not (trial.isolating or trial.joint)

    def end(self) -> None:
        """End the plan before all keys were tried.

        The keys that met a unique value count as refused, unless a recovery may have given it up since.
        """
        if not self._replace and not self._is_room_possible:
            blocked, self._blocked = self._blocked, []
            self._refused += blocked

    def record_recovery(self) -> None:
        """Record that the target has accepted the trial's rows."""
        trial = self._waiting.pop(0)
        self.recovered += trial.keys
        self._is_room_possible = self._is_any_decided = True
        if trial.joint:
            self._forget_blocked_keys(trial)
            self._waiting = _remove_keys(self._waiting, trial)
            self._failed = _remove_keys(self._failed, trial)

    def _forget_blocked_keys(self, trial: Trial) -> None:
        places = {key.place for key in trial.keys}
        self._blocked = [blocked for blocked in self._blocked if blocked[0].place not in places]

    def record_refusal(self, error: RefusedError, cycle: Sequence[HeldKey] = ()) -> None:
        """Record that the target refuses a row of the trial. `cycle`: the keys that wait for each other's
        unique values, of which its single key is one.
        """
        trial = self._waiting.pop(0)
        if trial.joint:
            pass  # its keys were refused each for itself, or have their own trials
        elif len(trial.keys) > 1:
            self._waiting[0:0] = _halve_trial(trial)
        elif isinstance(error, UniqueViolationError) and not trial.displacing:
            self._blocked.append((trial.keys[0], error))
            self._is_any_decided = self._is_any_decided or not self._replace
            if cycle and tuple(cycle) not in self._cycles:
                self._cycles.add(tuple(cycle))
                self._waiting.insert(0, Trial(tuple(cycle), joint=True))
        else:
            self._refused.append((trial.keys[0], error))
            self._is_any_decided = True

    def record_failure(self) -> HeldKey | None:
        """Record that the trial failed for now; return the key that therefore stays untried, if any."""
        self.failures += 1
        trial = self._waiting.pop(0)
        if len(trial.keys) > 1 and not trial.joint:
            size = -(-len(trial.keys) // PARTS_AFTER_FAILURE)
            self._waiting += [  # at the end, so that most keys are tried after few failures
                Trial(trial.keys[at : at + size], isolating=True) for at in range(0, len(trial.keys), size)
            ]
        elif trial.last:
            self._forget_blocked_keys(trial)
            return trial.keys[0]
        else:
            self._failed.append(replace(trial, last=True, isolating=False))
        return None

    def take_refusals(self) -> list[tuple[HeldKey, RefusedError]]:
        """Return the keys that were refused since the last call, with the target's reasons."""
        refused, self._refused = self._refused, []
        return refused


def _halve_trial(trial: Trial) -> list[Trial]:
    middle = len(trial.keys) // 2
    return [Trial(trial.keys[:middle]), Trial(trial.keys[middle:])]


def _remove_keys(trials: Iterable[Trial], done: Trial) -> list[Trial]:
    """Return the trials without the keys of `done`."""
    places = {key.place for key in done.keys}
    left = [replace(each, keys=tuple(key for key in each.keys if key.place not in places)) for each in trials]
    return [each for each in left if each.keys]


def _split_by_fold(keys: Sequence[HeldKey]) -> list[list[HeldKey]]:
    """Return the keys in lists without two keys of one fold, which the target may hold equal: they are
    written one after the other.
    """
    waves: list[list[HeldKey]] = []
    seen: dict[tuple[str, str], int] = {}
    for key in keys:
        place = (key.newest.table, key.newest.folded)
        number = seen[place] = seen.get(place, -1) + 1
        if number == len(waves):
            waves.append([])
        waves[number].append(key)
    return waves


def record_reason(
    key: HeldKey, error: RefusedError, level: int
) -> tuple[list[ChangeId], list[QuarantineEntry]]:
    """Return what a refused trial at the offset `level` changes in the quarantine: the entries to remove, and
    those to add: the newest with the target's reason.

    A first entry that only queues gets that reason, too: the key that it queued after may have left.
    """
    newest = msgspec.structs.replace(key.newest, error=format_refusal(error, level))
    if len(key.entries) == 1:
        return key.ids, [newest]
    if not is_queued(key.first):
        return key.ids[1:], [newest]
    why = f"its later row of offset {newest.offset} was refused: {error}"
    return key.ids, [msgspec.structs.replace(key.first, error=why), newest]
