"""Converts rows of a materialized view log to changes, and plans the deletion of log rows that Kafka has.

Pure.

The log of a table has a row for each image: DMLTYPE$$ I with OLD_NEW$$ N; D with O; and for an update U
with U, the image before, and U with N, the image after. An update of the primary key is a D of the old
key and an I of the new one. SEQUENCE$$ numbers the images in the order in which statements create them.
Rows become visible at their commit, so a later poll may bring lower numbers, but never for a row or a
unique value that an earlier poll brought: those were locked until the commit.

SEQUENCE$$ rises within one instance, but not across several instances (RAC): rows of a RAC are ordered
by their commit SCN first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from schemas.table.model import Key, Row


class LogRow(NamedTuple):
    """A row of a log.

    `scn`: commit SCN, 0 where the log has none or it is not known. `xid`: XID$$ as text, None where the
    log has none. `image`: wire values of the table's columns, in their order.
    """

    rowid: str
    sequence: int
    dml: str
    old_new: str
    xid: str | None
    scn: int
    image: Row


class LogPlace(NamedTuple):
    """The identity of a row of a log.

    A ROWID alone may be reused by another row, and a sequence number alone does not locate the row.
    """

    rowid: str
    sequence: int


class LoggedChange(NamedTuple):
    """A change of a row of the table.

    `places`: the log rows that describe it (one, or two for an update with whole images). `xid`: that of
    their transaction. An update without an image before: the row was changed or inserted, and the log
    has keys only.
    """

    op: Literal["c", "u", "d"]
    before: Row | None
    after: Row | None
    places: tuple[LogPlace, ...]
    xid: str | None


class LogBrokenError(Exception):
    """Rows of a log that form no change: something else wrote to it, or its options differ from those
    that were checked.
    """


class LogReadResult(NamedTuple):
    """The changes in the rows of a log, in the order in which they are published."""

    changes: list[LoggedChange]
    left: int  # rows at the end that wait for the rest of their update


def parse_log_rows(rows: Sequence[LogRow], key: Callable[[Row], Key], *, whole: bool) -> LogReadResult:
    """Return the changes in the rows of a poll, which may be in any order.

    `whole`: the poll has read all of the log, not only its beginning.

    Raises LogBrokenError.
    """
    open_updates: dict[Key, LogRow] = {}
    found: list[tuple[LogRow, LoggedChange]] = []
    for row in sorted(rows, key=_build_sort_key):
        here = key(row.image)
        old = open_updates.pop(here, None)
        kind = (row.dml, row.old_new)
        if (old is not None) != (kind == ("U", "N")):
            raise LogBrokenError(
                f"SEQUENCE$$ {row.sequence} is {kind}, and {'an' if old else 'no'} image "
                "before an update precedes it"
            )
        if kind == ("U", "U"):
            open_updates[here] = row
        else:
            found.append((row, _build_change(row, old)))
    if open_updates and whole:
        shown = min(row.sequence for row in open_updates.values())
        raise LogBrokenError(
            f"SEQUENCE$$ {shown} is an image before an update, and the image after it is missing"
        )
    return LogReadResult(_group_by_transaction(found), len(open_updates))


def _build_sort_key(row: LogRow) -> tuple[int, int]:
    return row.scn, row.sequence


def _build_change(row: LogRow, old: LogRow | None) -> LoggedChange:
    here = LogPlace(row.rowid, row.sequence)
    match (row.dml, row.old_new):
        case ("I", "N"):
            return LoggedChange("c", None, row.image, (here,), row.xid)
        case ("D", "O"):
            return LoggedChange("d", row.image, None, (here,), row.xid)
        case ("U", "N") if old is not None:
            places = (LogPlace(old.rowid, old.sequence), here)
            return LoggedChange("u", old.image, row.image, places, row.xid)
    raise LogBrokenError(
        f"SEQUENCE$$ {row.sequence} has DMLTYPE$$ {row.dml!r} with OLD_NEW$$ {row.old_new!r}"
    )


def _group_by_transaction(found: list[tuple[LogRow, LoggedChange]]) -> list[LoggedChange]:
    """Group the changes by transaction, where it is known.

    Transactions follow in the order of their last numbers. Of two that changed the same row, the later
    one waited for the earlier one's commit and has a number after all of the earlier one's, so the order
    of each row's changes is kept.
    """
    last: dict[str, int] = {}
    for row, _ in found:
        if row.xid is not None:
            last[row.xid] = max(last.get(row.xid, 0), row.sequence)

    def order(each: tuple[LogRow, LoggedChange]) -> tuple[int, int, str, int]:
        row = each[0]
        return row.scn, row.sequence if row.xid is None else last[row.xid], row.xid or "", row.sequence

    return [change for _, change in sorted(found, key=order)]


MOST_PLACES = 500
"""Rows of a log in one event, where an event represents many."""


def with_current(
    changes: Iterable[LoggedChange],
    current: Mapping[Key, Row],
    key: Callable[[Row], Key],
    unlogged: Collection[int],
) -> list[LoggedChange]:
    """Complete the images after each change with values that the log does not have: those of `unlogged`
    columns in the present row.

    A change of a row that is missing by now becomes a delete; the log row of the deletion is in this
    poll or in a later one.
    """
    return [_fill_unlogged_columns(change, current, key, unlogged) for change in changes]


def _fill_unlogged_columns(
    change: LoggedChange, current: Mapping[Key, Row], key: Callable[[Row], Key], unlogged: Collection[int]
) -> LoggedChange:
    after = change.after
    if after is None:
        return change
    now = current.get(key(after))
    if now is None:
        return change._replace(op="d", before=after if change.before is None else change.before, after=None)
    return change._replace(after=tuple(now[i] if i in unlogged else value for i, value in enumerate(after)))


def list_finally_deleted_keys(rows: Iterable[LogRow], key: Callable[[Row], Key]) -> list[Key]:
    """Return the keys that the log deletes last.

    Keys are checked at the end of a statement (or at the commit, if deferred), but logged row by row:
    `SET id = id + 1` gives 2 to one row before it takes 2 from another. So such a key may exist in the
    table, which the images do not show.
    """
    last = {key(row.image): row for row in sorted(rows, key=_build_sort_key)}
    return [here for here, row in last.items() if row.dml == "D"]


def with_kept(
    changes: Sequence[LoggedChange], kept: Mapping[Key, Row], key: Callable[[Row], Key]
) -> list[LoggedChange]:
    """Replace the last change of each key of `kept` by an update to the row that the table has, although
    the log deletes its key last.
    """
    left, found = dict(kept), list[LoggedChange]()
    for change in reversed(changes):
        image = change.before if change.after is None else change.after
        now = left.pop(key(image), None) if image is not None else None
        found.append(change if now is None else change._replace(op="u", after=now))
    return found[::-1]


def merge_log_rows(
    rows: Iterable[LogRow], current: Mapping[Key, Row], key: Callable[[Row], Key]
) -> list[LoggedChange]:
    """Return the changes in the rows of a log with keys only: each key once, with its present row or as
    a delete.
    """
    by_key: dict[Key, list[LogRow]] = {}
    for row in sorted(rows, key=_build_sort_key):
        by_key.setdefault(key(row.image), []).append(row)
    found: list[LoggedChange] = []
    for here, images in sorted(by_key.items(), key=lambda each: _build_sort_key(each[1][-1])):
        now = current.get(here)
        for at in range(0, len(images), MOST_PLACES):
            places = tuple(LogPlace(row.rowid, row.sequence) for row in images[at : at + MOST_PLACES])
            xid = images[-1].xid
            if now is None:
                found.append(LoggedChange("d", images[-1].image, None, places, xid))
            else:
                found.append(LoggedChange("u", None, now, places, xid))
    return found


def find_published_row(rows: Iterable[LogRow], published: Collection[int]) -> LogRow | None:
    """Return a row of the log with a number that the topic already has.

    Its ROWID must have changed, or it would have been deleted.
    """
    return next((row for row in rows if row.sequence in published), None)


def plan_purge(places: Sequence[LogPlace], most: int) -> list[list[LogPlace]]:
    """Split a deletion into statements of at most `most` rows, in the order of the rows' places in the
    log's blocks.
    """
    ordered = sorted(set(places))
    return [ordered[at : at + most] for at in range(0, len(ordered), most)]


# --- numbers of polls

STEP = 2
"""A poll has two numbers: events found by its look at the catalog have the first one, its rows the
second one.
"""
_APART = 1 << 16


def compute_next_poll(stored: int, highest: int | None, *, captured_before: bool) -> int:
    """Return the number of the first poll of a run.

    `stored`: the number from which the record continues. `highest`: the highest number in any topic; an
    earlier process may have assigned it without a record. `captured_before`: there was an earlier process;
    its watermarks may contain numbers after its last record.
    """
    at_least = stored if highest is None else max(stored, highest + 1)
    if captured_before:
        at_least += _APART
    return at_least + at_least % STEP


def has_whole_poll_between(before: int, now: int) -> bool:
    """Return whether a whole poll took place while the number of the next poll went from `before` to
    `now` within a run.

    The poll `before` may have begun earlier, but the one after it has not.
    """
    return now >= before + 2 * STEP


def build_high_watermark(begun: int) -> int:
    """Return a place of the log that is after everything committed by now.

    `begun`: the number of the last poll that has begun, which may have read earlier. The next poll
    certainly reads later, and ends at the returned place.
    """
    return begun + 2 * STEP
