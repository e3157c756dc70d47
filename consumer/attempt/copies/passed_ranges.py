"""Compares the ranges that a key sweep has passed with the target (consumer.attempt.copies.key_sweep)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from consumer.attempt.copies.key_sweep import KeySweep, PassedRange
from consumer.attempt.copies.sweep import fetch_bounded_page, read_topic_after
from consumer.attempt.effects import Machine
from consumer.attempt.readers.reader import KeysRead, ReaderItem
from consumer.errors import CopyNeededError
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import build_key_table
from schemas.table.model import Key

RemoveKeys = Callable[[Sequence[Key]], Machine[int]]
"""(keys) → a `Machine` that deletes the rows of these keys, unless they are kept, in one transaction that
guards the unit's progress, and returns the number of deleted rows."""


def compare_range(
    sweep: KeySweep, active: ActiveDefinition, topic: str, remove: RemoveKeys
) -> Machine[PassedRange | None]:
    """Compare a page of the first range's keys with the target, or delete some of its rows that no longer
    exist at the source. Return the range, which is dropped, if it has no more keys.

    All lanes are at the offset `sweep.upto`. Raises BoundRefusedError if the target refuses a bound, and
    CopyNeededError if it shows keys in another form than the source.
    """
    passed = sweep.ranges[0]
    if passed.keys is None:
        yield from _read_keys_again(sweep, active, topic)
    if not passed.doubted:
        page = yield from _fetch_page(passed, active)
        if not page or page[-1] == passed.after:
            return sweep.ranges.popleft()
        passed.note_page(page)
        if not active.have_key_form(passed.doubted):
            raise build_altered_key_error(topic, active, sweep.upto)
    if dead := sweep.select_dead_keys():
        passed.count_deleted((yield from remove(dead)))
    return None


def build_altered_key_error(topic: str, active: ActiveDefinition, offset: int) -> CopyNeededError:
    """Return the error of a unit at `offset` whose target no longer shows keys as the source does, so that
    ranges that it has passed cannot be compared.
    """
    target = active.target
    return CopyNeededError(
        f"{topic}: the key of target table {target.schema}.{target.name} was altered while rowlock was "
        "deleting rows that the source no longer has; a copy compares all rows",
        cause="rows-replaced",
        after=offset,
    )


def _fetch_page(passed: PassedRange, active: ActiveDefinition) -> Machine[Sequence[Key]]:
    upto = passed.chunk.upto
    bound = None if upto is None else active.convert_keys([upto])[0]
    return (yield from fetch_bounded_page(build_key_table(active.target), active, passed.after, bound))


def _read_keys_again(sweep: KeySweep, active: ActiveDefinition, topic: str) -> Machine[None]:
    """Read the keys of the first ranges, as many as are kept at a time: to begin to read costs more than to
    read on.
    """
    ranges = sweep.list_unread_ranges()
    found: list[tuple[int, Sequence[Key]]] = []

    def take(taken: ReaderItem) -> None:
        if isinstance(taken, KeysRead):
            found.append((taken.mark[0], taken.keys))

    yield from read_topic_after(topic, active, ranges[0].chunk.since, ranges[-1].at, take)
    for each in ranges:
        inside = (keys for offset, keys in found if each.chunk.since < offset < each.at)
        each.note_keys({key for keys in inside for key in keys})


def read_key_sweep(topic: str, active: ActiveDefinition, since: int, upto: int) -> Machine[KeySweep]:
    """Return the key sweep of a unit at the offset `upto` that has compared all ranges up to the event at
    `since`.
    """
    sweep = KeySweep(since)
    if upto > since:
        yield from read_topic_after(
            topic, active, since, upto + 1, lambda taken: sweep.note_taken(taken, topic, active)
        )
    sweep.pass_records(upto)
    return sweep
