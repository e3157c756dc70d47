"""The position of an event in its source's log: the key by which duplicates are recognised.

A position is a tuple `(epoch, file, pos, row)` that is compared as a tuple. `pos` is the start of the
transaction that *published* the row; `row` is the ordinal in the whole transaction, counted before any
filter. Snapshot rows have the HIGH watermark with a negative `row` that grows over all chunks, so that
they sort after everything before HIGH and before everything after it.
"""

from __future__ import annotations

Position = tuple[int, int, int, int]
LogPoint = tuple[int, int]
"""(number of the log file, offset): a place in the source's log, where an event starts, or a range
begins or ends.

For Oracle: (0, number of a poll).
"""

#: `row` of the first snapshot row of a topic; later ones count up and never reach 0.
FIRST_SNAPSHOT_ROW = -(2**53)
#: `row` of a table's first definition and of its repetitions: sorts before every snapshot row at the
#: same pos.
DEFINITION_ROW = FIRST_SNAPSHOT_ROW - 1
#: `row` of a stop with its cause in the transaction: sorts after every row of it, and before all that
#: follows.
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
