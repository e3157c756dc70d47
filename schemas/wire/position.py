"""The position of an event in its source's log (design.md §4): the key by which duplicates are recognised.

A position is a tuple `(epoch, file, pos, row)` that is compared as a tuple. `pos` is the start of the
transaction that *published* the row; `row` is the ordinal over the whole transaction, counted before any
filter. Snapshot rows stand at the HIGH watermark with a negative `row` that rises over all chunks, so that
they sort after everything before HIGH and before everything after it.
"""

from __future__ import annotations

Position = tuple[int, int, int, int]
LogPoint = tuple[int, int]
"""(number of the log file, offset): a place of the source's log, where an event starts, or where a stretch begins and ends.
Of Oracle: (0, number of a poll)."""

#: `row` of the first snapshot row of a topic; later ones count up and never reach 0.
FIRST_SNAPSHOT_ROW = -(2**53)
#: `row` of a table's first definition and of its repetitions: sorts before every snapshot row at the same pos.
DEFINITION_ROW = FIRST_SNAPSHOT_ROW - 1
#: `row` of a stop that has its cause in the transaction: sorts behind every row of it, and before all that follows.
STOP_ROW = 2**52
#: Below every position that can occur.
ZERO: Position = (0, 0, 0, DEFINITION_ROW - 1)


def parse_binlog_file_number(name: str) -> int:
    """Return the numeric suffix of a binlog file name ("binlog.000003" → 3); files compare by number.

    Raises ValueError when the name has no numeric suffix.
    """
    suffix = name.rpartition(".")[2]
    if not suffix.isdigit():
        raise ValueError(f"binlog file name {name!r} has no numeric suffix")
    return int(suffix)
