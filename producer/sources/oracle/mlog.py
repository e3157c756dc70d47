"""Rows of a materialized view log → changes, and what is deleted of the log when Kafka has them. Pure.

The log of a table has a row for each image: DMLTYPE$$ I with OLD_NEW$$ N; D with O; and for an update U with U, the image before, and U
with N, the one behind. An update of the primary key is a D of the old key and an I of the new one. SEQUENCE$$ counts statements' images
as they were made; rows become visible at their commit, so that a later poll may bring lower numbers, but never of a row, or of a unique
value, that an earlier poll has brought: those were locked until the commit.

Numbers of one instance rise. Those of several (RAC) do not, so that there the commit SCN is asked for; it comes first in the order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from schemas.table.model import Key, Row


class LogRow(NamedTuple):
    """A row of a log. `scn`: commit SCN, 0 where the log has none, or where it is not known; `xid`: XID$$ as text, None where the log has none.

    `image`: wire values of the table's columns, in their order.
    """

    rowid: str
    sequence: int
    dml: str
    old_new: str
    xid: str | None
    scn: int
    image: Row


class LogPlace(NamedTuple):
    """The place of a row of a log: ROWID alone may be given to another row, and a sequence number alone says nothing of where it is."""

    rowid: str
    sequence: int


class LoggedChange(NamedTuple):
    """A change of a row of the table. `places`: the rows of the log that say it (of a whole image one, of an update two); `xid`: of their
    transaction. An update without an image before: the row was changed or made, by a log that has keys only."""

    op: Literal["c", "u", "d"]
    before: Row | None
    after: Row | None
    places: tuple[LogPlace, ...]
    xid: str | None


class LogBrokenError(Exception):
    """Rows of a log that make no change: another hand was in it, or its options are others than those that were checked."""


class LogReadResult(NamedTuple):
    """`changes` in the order in which they are published."""

    changes: list[LoggedChange]
    left: int  # rows at the end that wait for the rest of their update


def parse_log_rows(rows: Sequence[LogRow], key: Callable[[Row], Key], *, whole: bool) -> LogReadResult:
    """Return what rows of a poll, in any order, say. `whole`: the poll has brought all of the log, not only its beginning.

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
                f"SEQUENCE$$ {row.sequence} is {kind}, and {'an' if old else 'no'} image before an update stands before it"
            )
        if kind == ("U", "U"):
            open_updates[here] = row
        else:
            found.append((row, _build_change(row, old)))
    if open_updates and whole:
        shown = min(row.sequence for row in open_updates.values())
        raise LogBrokenError(
            f"SEQUENCE$$ {shown} is an image before an update, and the one behind is missing"
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
    """Put changes of one transaction together, where it is known.

    Transactions follow in the order of their last numbers. Of two that changed the same row, the later one waited for the earlier one's
    commit, and has a number behind all of the earlier one's: so the order of each row's changes is kept.
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
"""Rows of a log of one event, where it stands for many."""


def with_current(
    changes: Iterable[LoggedChange],
    current: Mapping[Key, Row],
    key: Callable[[Row], Key],
    unlogged: Collection[int],
) -> list[LoggedChange]:
    """Give images behind a change what the log does not have: the values of `unlogged` columns in the row as it is now.

    A row that is gone by now is deleted here: the row of the log that says so is in this poll or in a later one.
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
    """Return the keys of which the last row of the log says that they are gone.

    Keys are checked at the end of a statement (or at the commit, if deferred), and logged row by row: `SET id = id + 1` gives 2 to one row
    before it takes 2 from another. So such a key may be there, and the images do not tell.
    """
    last = {key(row.image): row for row in sorted(rows, key=_build_sort_key)}
    return [here for here, row in last.items() if row.dml == "D"]


def with_kept(
    changes: Sequence[LoggedChange], kept: Mapping[Key, Row], key: Callable[[Row], Key]
) -> list[LoggedChange]:
    """Make the last change of each key of `kept` what it came to: the row that the table has, though the log has deleted its key."""
    left, found = dict(kept), list[LoggedChange]()
    for change in reversed(changes):
        image = change.before if change.after is None else change.after
        now = left.pop(key(image), None) if image is not None else None
        found.append(change if now is None else change._replace(op="u", after=now))
    return found[::-1]


def merge_log_rows(
    rows: Iterable[LogRow], current: Mapping[Key, Row], key: Callable[[Row], Key]
) -> list[LoggedChange]:
    """Return what rows of a log that has keys only say: each key once, as the row is now, or that it is gone."""
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
    """Return a row whose number the topic has already: its ROWID is another one, or it would have been deleted."""
    return next((row for row in rows if row.sequence in published), None)


def plan_purge(places: Sequence[LogPlace], most: int) -> list[list[LogPlace]]:
    """Divide what is to be deleted into statements of at most `most` rows, in the order of their places in the log's blocks."""
    ordered = sorted(set(places))
    return [ordered[at : at + most] for at in range(0, len(ordered), most)]


# --- numbers of polls

STEP = 2
"""A poll has two numbers: what its look at the catalogue found stands at the first one, its rows at the second."""
_APART = 1 << 16


def compute_next_poll(stored: int, highest: int | None, *, again: bool) -> int:
    """Return the number of the first poll of a stretch.

    `stored`: where the record says that capture goes on; `highest`: the highest number that a topic has, which a process before may have
    given without a record; `again`: there was one, whose watermarks may have named numbers behind its last record.
    """
    at_least = stored if highest is None else max(stored, highest + 1)
    if again:
        at_least += _APART
    return at_least + at_least % STEP


def has_whole_poll_between(before: int, now: int) -> bool:
    """Tell whether a poll began, and ended, while the number of the next one went from `before` to `now` within a stretch: the poll
    `before` may have begun earlier, and the one behind it has not."""
    return now >= before + 2 * STEP


def build_high_watermark(begun: int) -> int:
    """Return a place of the log that is behind all that is committed by now. `begun`: the number of the last poll that has begun, which
    may have read before now; the next one surely reads behind it, and ends there."""
    return begun + 2 * STEP
