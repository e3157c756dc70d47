"""Stopped tables, and the places of the stops in their topics. Pure.

A stop is durable. It is in memory from its cause on (no more rows of the table are encoded), in the
table's topic before anything later, and in the position record before that moves past the cause. At a
start both the record and the ends of the topics contain the stops. Only a copy of the table ends a stop,
with its begin event (docs/adr/0025).

The stop event has the place of the log's event with the cause, after every row (`STOP_ROW`). So it is
above everything of its transaction, below everything that follows, and the same when the log is read
again. A stop without such a place (found at a start, or sent late because the topic already had higher
events) gets the stream's place once that is above everything in the topic: just before the log's next
event, or like a snapshot row there. So later events are above it, including a copy that begins before
the log continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from producer.binlog_format.errors import (
    DecodeError,
    DefinitionMismatch,
    IncompleteRowImage,
    OversizedValue,
)
from producer.errors import TableStoppedError
from producer.kafka.settings import (
    MAX_EVENT_BYTES,
    MAX_MESSAGE_BYTES,
    MESSAGE_OVERHEAD,
    TOPIC_MESSAGE_BYTES,
)
from producer.sources.changes import Barrier
from producer.statements.actions import RowEffect
from producer.statements.ddl import SchemaDrop, TableDdl
from producer.statements.judgement import StatementVerdict
from producer.statements.tokens import cut_row_values
from schemas.findings import COPY_EACH, add_exclusion, format_copy_remedy
from schemas.problems import Problem
from schemas.table.left_out import LeftOutColumns
from schemas.table.model import Table, list_ambiguous_columns
from schemas.table.patterns import format_table_pattern
from schemas.wire.position import STOP_ROW, Position
from schemas.wire.records import TableStop

TableName = tuple[str, str]

#: Every cause of a stop, and its meaning.
CAUSES: dict[str, str] = {
    "dropped": "the table was dropped at the source",
    "unseen": "capture no longer sees the table, and the log does not show that it was dropped",
    "rows-replaced": "a statement emptied, replaced or swapped rows that the log does not show",
    "statement": "a statement that is logged as text, not as rows, may have changed the table",
    "definition": "the active definition at a position of the log cannot be proven, "
    "or does not fit the rows there",
    "value": "a value cannot be decoded",
    "size": "a row is larger than Kafka's maximum message size",
    "unfit": "the table changed so that it cannot be captured",
    "deselected": "the table was taken out of `tables:`",
    "columns": "`columns:` leaves out other columns than the table's topic does",
    "xa": "an XA transaction changes the table, and its rows are not known or cannot be read",
    "log": "capture cannot follow the table in the log",
    "failover": "the topic and the log of the source's new server do not agree about the table",
    "topic": "Kafka's topic of the table is missing or unsuitable",
    "topic-lost": "Kafka's topic of the table was deleted, created again, or has lost its last records",
}


@dataclass(slots=True)
class StoppedTable:
    """A stopped table.

    `position`, `offset`: those of its stop event in the topic, None until it has one.

    `place`: the intended place of the event, if its cause has a place in the log that was just read.
    """

    stop: TableStop
    position: Position | None = None
    offset: int | None = None
    place: Position | None = None


@dataclass(frozen=True, slots=True)
class StopCause:
    """The place of a cause in the log: the event's place, and its time in ms since 1970."""

    epoch: int
    file: str
    file_number: int
    pos: int
    ts_ms: int

    def build_table_stop(self, name: TableName, error: TableStoppedError) -> TableStop:
        """Return the stop of one of the tables of `error`.

        Its reason names the table, and its remedy is a copy of it.
        """
        table = f"{name[0]}.{name[1]}"
        reason = error.reason if table in error.reason else f"{table}: {error.reason}"
        return TableStop(
            cause=error.cause,
            at=(self.epoch, self.file_number, self.pos, -1),
            file=self.file,
            pos=self.pos,
            reason=reason,
            remedy=add_exclusion(error.remedy.replace(COPY_EACH, format_copy_remedy(*name)), *name),
            since_ms=self.ts_ms,
        )

    def build_stop_position(self, number: int = 0) -> Position:
        """Return the place of the stop event of the `number`-th of the tables."""
        return self.epoch, self.file_number, self.pos, STOP_ROW + number


_DECODING_CAUSES: Mapping[type[DecodeError], str] = {
    DefinitionMismatch: "definition",
    IncompleteRowImage: "log",
    OversizedValue: "size",
}


def build_decoding_stop(name: TableName, error: DecodeError) -> TableStoppedError:
    """Return the stop of a table with rows that cannot be read."""
    cause = _DECODING_CAUSES.get(type(error), "value")
    what, remedy = error.problem.what, error.problem.remedy
    first = f"{remedy}, and " if remedy else ""
    return TableStoppedError(frozenset([name]), cause, what, f"{first}{format_copy_remedy(*name)}")


def build_oversized_row_stop(
    name: TableName, record: tuple[bytes, bytes], topic: str, limit: int
) -> TableStoppedError:
    """Return the stop of a table with a row that Kafka rejects.

    `record`: its event. `limit`: the bytes of key and value that an event of `topic` may have.
    """
    key, value = record
    row, size = key[:200].decode("utf-8", "replace"), len(key) + len(value)
    copy, largest = format_copy_remedy(*name), _describe_largest_column(value)
    if limit < MAX_EVENT_BYTES:
        return TableStoppedError(
            frozenset([name]), "size",
            f"the row {row} of {name[0]}.{name[1]} makes an event of {size} bytes{largest}, and topic "
            f"{topic} takes up to {limit} bytes (max.message.bytes {limit + MESSAGE_OVERHEAD})",
            f"set max.message.bytes of the topic to {TOPIC_MESSAGE_BYTES}, then {copy}",
        )  # fmt: skip
    return TableStoppedError(
        frozenset([name]), "size",
        f"the row {row} of {name[0]}.{name[1]} makes an event of {size} bytes{largest}, the limit "
        f"is {MAX_MESSAGE_BYTES} bytes",
        f"leave columns out (`columns:`), or exclude the table, or make the row smaller and {copy}",
    )  # fmt: skip


def _describe_largest_column(value: bytes) -> str:
    """Return which column takes most of an event, in brackets."""
    event, sizes = orjson.loads(value), dict[str, int]()
    for image in (event["before"], event["after"]):
        for column, part in (image or {}).items():
            sizes[column] = sizes.get(column, 0) + len(orjson.dumps(part))
    if not sizes:
        return ""
    largest = max(sizes, key=lambda column: sizes[column])
    return f" (column {largest}: {sizes[largest]} bytes)"


def find_stop_position(place: Position | None, ceiling: Position | None, *here: Position) -> Position | None:
    """Return the place of a stop event in a topic that ends at `ceiling`; None: it has none yet.

    `here`: the stream's places.
    """
    for position in (place, *here):
        if position is not None and (ceiling is None or position > ceiling):
            return position
    return None


def explain_dropped_remedy(name: TableName) -> str:
    """Return the remedy for a missing table.

    Capture requests the copy itself when it sees the statement that creates the table again.
    """
    copy_remedy = format_copy_remedy(*name)
    return (
        f'take it out of `tables:` (add "!{format_table_pattern(name)}" to them, with the quotes, and '
        f"run `rowlock reload`), or create it again; if capture does not notice the new table, {copy_remedy}"
    )


def explain_unseen_table(name: TableName) -> Problem:
    """Return the problem of a table that the catalog does not show, and that no statement has dropped.

    A server hides a table from a user without a right to it, so it is not known to be gone.
    """
    table = f"{name[0]}.{name[1]}"
    return Problem(
        f"the server does not show {table} to rowlock's user, and the log does not show that it was dropped",
        f"let the user read it (GRANT SELECT ON {table}, or on all of {name[0]}; "
        f"`rowlock check` prints the GRANT), then {format_copy_remedy(*name)}; if the table is gone, "
        f'add "!{format_table_pattern(name)}" to `tables:` (with the quotes) and run `rowlock reload`',
    )


def build_unseen_stop(name: TableName) -> TableStoppedError:
    """Return the stop of a table that the catalog does not show any more."""
    problem = explain_unseen_table(name)
    return TableStoppedError(frozenset([name]), "unseen", problem.what, problem.action)


def find_stop_at_start(
    name: TableName, *, selected: bool, exists: bool, unfit: Problem | None
) -> TableStoppedError | None:
    """Return why a start stops a table that was captured before; None: it continues.

    `exists`: the catalog shows it, or the log has a later statement on it, such as its DROP. `unfit`: why
    it cannot be captured as it is now.
    """
    table, one = f"{name[0]}.{name[1]}", frozenset([name])
    if not selected:
        return TableStoppedError(
            one, "deselected", f"{table} was taken out of `tables:`, and its changes since are not captured",
            f"to capture it again, select it and {format_copy_remedy(*name)}",
        )  # fmt: skip
    if not exists:
        return build_unseen_stop(name)
    if unfit is not None:
        first = f"{unfit.action}, then " if unfit.action else ""
        return TableStoppedError(one, "unfit", unfit.what, f"{first}{format_copy_remedy(*name)}")
    return None


def build_ambiguous_label_stop(table: Table) -> TableStoppedError | None:
    """Return the stop of a table with an empty label in its topic's definition, among labels that are
    written as text; None: there is none.

    Versions before 0.1.0 wrote such definitions. A copy begins with a definition that uses numbers
    instead.
    """
    columns = list_ambiguous_columns(table)
    if not columns:
        return None
    name = (table.db, table.name)
    return TableStoppedError(
        frozenset([name]),
        "definition",
        f"column {', '.join(columns)} of {'.'.join(name)} has an empty label, so a text of its "
        "labels can mean two values: its values are written as numbers from now on, and rows that "
        "were written before may be wrong",
        format_copy_remedy(*name),
    )


def build_columns_stop(name: TableName, table: Table, left_out: LeftOutColumns) -> TableStoppedError | None:
    """Return the stop of a table whose columns are published otherwise since the option `columns:` was
    changed; None: they are published as before.

    `table`: the definition in its topic. Values of a column that was not published are in no event, and
    rows that were published before still have those of a column that no longer is. A copy replaces both.
    """
    different = left_out.find_differences(table)
    if not different:
        return None
    published = [column for column in different if column in table.column_names]
    newly = [column for column in different if column not in published]
    what = [f"leaves out {', '.join(published)}, which the topic has"] if published else []
    what += [f"publishes {', '.join(newly)}, whose earlier values the topic lacks"] if newly else []
    reason = f"`columns:` now {' and '.join(what)} ({'.'.join(name)})"
    return TableStoppedError(frozenset([name]), "columns", reason, format_copy_remedy(*name))


def merge_table_stops(
    record: Mapping[str, TableStop], topic: Mapping[str, TableStop]
) -> dict[str, TableStop]:
    """Return the current stops ("db.table" →) from the position record and the topics.

    Of two for a table the earlier one counts.
    """
    found = dict(topic)
    for name, stop in record.items():
        if name not in found or stop.at < found[name].at:
            found[name] = stop
    return found


_WHAT: dict[RowEffect, str] = {
    "gone": "was dropped or renamed",
    "removed": "lost rows by a statement that the log shows only as text",
    "emptied": "lost rows by a statement that the log shows only as text",
    "replaced": "had its rows replaced by a statement that the log shows only as text",
    "unknown": "may have other rows or values because of a statement that the log shows only as text",
}


def build_statement_stop(barrier: Barrier, verdict: StatementVerdict) -> TableStoppedError:
    """Return the stop of a table that the statement causes."""
    if verdict.logged:
        return _build_logged_change_stop(barrier, verdict)
    cause = "dropped" if verdict.rows == "gone" else "rows-replaced"
    kind, sql = barrier.statement.kind, barrier.statement.sql
    if not isinstance(kind, TableDdl | SchemaDrop):
        cause = "statement"
    shown = sql if isinstance(kind, TableDdl) else cut_row_values(sql)
    reason = f"{'.'.join(verdict.table)} {_WHAT[verdict.rows]}: {shown[:200]}"
    if verdict.why:
        reason = f"{reason} ({verdict.why})"
    remedy = (
        explain_dropped_remedy(verdict.table)
        if verdict.rows == "gone"
        else format_copy_remedy(*verdict.table)
    )
    return TableStoppedError(frozenset([verdict.table]), cause, reason, remedy)


def build_conversion_stop(name: TableName, barrier: Barrier, why: str) -> TableStoppedError:
    """Return the stop of a table with values that a statement may have changed by its session's
    settings.
    """
    shown = barrier.statement.sql[:200]
    reason = (
        f"a statement may have changed values of {'.'.join(name)} without row events in the log: "
        f"{shown} ({why})"
    )
    return TableStoppedError(frozenset([name]), "rows-replaced", reason, format_copy_remedy(*name))


def build_swap_stop(name: TableName, barrier: Barrier, why: str) -> TableStoppedError:
    """Return the stop of a table after a swap that no tool's statements explain."""
    shown = barrier.statement.sql[:200]
    reason = (
        f"{'.'.join(name)} was replaced by another table, and the log may not show all rows of that table: "
        f"{shown} ({why})"
    )
    return TableStoppedError(frozenset([name]), "rows-replaced", reason, format_copy_remedy(*name))


def _build_logged_change_stop(barrier: Barrier, verdict: StatementVerdict) -> TableStoppedError:
    """Return the stop of a table that a change logged as a statement causes."""
    shown = cut_row_values(barrier.statement.sql)[:200]
    reason = (
        f"a change logged as a statement, not as rows, may have changed {'.'.join(verdict.table)}: {shown}"
    )
    remedy = (
        "binlog_format must be ROW for every session (SET GLOBAL binlog_format=ROW, reconnect the clients), "
        f"then {format_copy_remedy(*verdict.table)}"
    )
    if verdict.why:
        reason = f"{reason} ({verdict.why})"
    return TableStoppedError(frozenset([verdict.table]), "statement", reason, remedy)
