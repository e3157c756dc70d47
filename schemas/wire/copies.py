"""Copies of one table: the requests to capture, and the state that capture reports.

`<prefix>.<source>.copy` (1 partition, compacted, key = `CopyRequest.id`) contains requests, made by
people and by apply units that cannot continue. Capture reads them in order and keeps the state of each
in `StoredPosition.copies`, so a request is carried out once whatever restarts. `Watermark.copies` shows
the same to all other processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from schemas.table.names import format_table_text
from schemas.wire.position import Position

CopyPhase = Literal["waiting", "running", "done", "refused", "cancelled"]


def copy_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}.copy"


class RepairLimits(msgspec.Struct, kw_only=True, frozen=True):
    """Limits of copies that no person asked for (`repair:` of a pipeline); `max_per_day`: of one table."""

    max_rows: int = msgspec.field(name="max_rows")
    max_per_day: int = msgspec.field(name="max_per_day")


class CopyRequest(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A request to copy the table `db`.`table` again."""

    id: str = msgspec.field(name="id")
    db: str = msgspec.field(name="db")
    table: str = msgspec.field(name="table")
    by: str = msgspec.field(name="by")
    """"operator", "pipeline NAME" or "capture"."""
    requested_ms: int = msgspec.field(name="requested_ms")
    """Time of the request, in ms since 1970."""
    where: str | None = msgspec.field(name="where", default=None)
    """An SQL condition of the source; only rows that match it are copied, and no rows are deleted for it."""
    cause: str = msgspec.field(name="cause", default="")
    """Why the table needs the copy (one of producer.stops.CAUSES, or a cause of the apply side); empty
    if a person asked.
    """
    limits: RepairLimits | None = msgspec.field(name="limits", default=None)
    """Size limits; None: the table is copied whatever its size."""
    after: int | None = msgspec.field(name="after", default=None)
    """A Kafka offset in the table's topic; a copy that begins after it already satisfies the request."""
    cancel: bool = msgspec.field(name="cancel", default=False)
    """Cancel the waiting or running copy instead."""
    max_rows_per_second: int | None = msgspec.field(name="max_rows_per_second", default=None)
    """None: the source's `copy_rows_per_second`; 0: as fast as the source delivers rows."""
    rate_only: bool = msgspec.field(name="rate_only", default=False)
    """Only change `max_rows_per_second` of the waiting or running copy (None: no limit)."""


MAX_DDL_LENGTH = 300
"""Characters of a statement that states and records show."""
_ID_PREFIX = "rows removed at "


class RemovedRows(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A debt: rows that statements removed without row events (DROP PARTITION). Targets keep them until a
    key sweep, or a copy of the whole table, that begins after `offset` has ended.
    """

    id: str = msgspec.field(name="id")
    """Identifies the key sweep that pays the debt."""
    offset: int = msgspec.field(name="offset")
    """Kafka offset of the last statement's event."""
    ddl: str = msgspec.field(name="ddl")
    """The last statement, cut to `MAX_DDL_LENGTH`."""
    since_ms: int = msgspec.field(name="since_ms")
    """Time of the first statement at the source."""
    statements: int = msgspec.field(name="statements", default=1)
    """How many statements removed rows since then."""
    position: Position | None = msgspec.field(name="position", default=None)
    """Position of the last statement's event; offsets are no measure once the topic is created anew. A
    unit's debt has none: it belongs to one topic.
    """

    @classmethod
    def build_from_statement(
        cls,
        place: tuple[int, str, int],
        sql: str,
        *,
        offset: int,
        since_ms: int,
        position: Position | None = None,
    ) -> RemovedRows:
        """Return the debt of the statement `sql` at `place` of the log: epoch, file, and its position there.

        The place gives the id, so capture and each unit have the same one.
        """
        epoch, file, pos = place
        return cls(
            id=f"{_ID_PREFIX}{epoch}/{file}:{pos}",
            offset=offset,
            ddl=sql[:MAX_DDL_LENGTH],
            since_ms=since_ms,
            position=position,
        )

    @property
    def at(self) -> str | None:
        """`file:position` of the last statement in the source's log; None: not known."""
        return self.id.partition("/")[2] if self.id.startswith(_ID_PREFIX) else None

    def describe(self) -> str:
        """Return the debt in words."""
        since = datetime.fromtimestamp(self.since_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        place = "" if self.at is None else f", at {self.at}"
        return (
            f"{self.statements} statement(s) since {since} removed rows that targets may still have; "
            f"the last{place}: {self.ddl}"
        )

    def covers(self, offset: int) -> bool:
        """Return whether the statement may have removed the row of a topic's event at `offset`."""
        return offset <= self.offset

    def add_statement(self, earlier: RemovedRows | None) -> RemovedRows:
        """Return the debt of this statement and of those before it."""
        if earlier is None:
            return self
        return msgspec.structs.replace(
            self, since_ms=earlier.since_ms, statements=earlier.statements + self.statements
        )


class CopyOutcome(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The outcome of a request so far. Times in ms since 1970."""

    id: str = msgspec.field(name="id")
    db: str = msgspec.field(name="db")
    table: str = msgspec.field(name="table")
    by: str = msgspec.field(name="by")
    phase: CopyPhase = msgspec.field(name="phase")
    requested_ms: int = msgspec.field(name="requested_ms")
    where: str | None = msgspec.field(name="where", default=None)
    cause: str = msgspec.field(name="cause", default="")
    began_ms: int | None = msgspec.field(name="began_ms", default=None)
    ended_ms: int | None = msgspec.field(name="ended_ms", default=None)
    begin: Position | None = msgspec.field(name="begin", default=None)
    """Position of the event with which the table's last copy begins in its topic."""
    offset: int | None = msgspec.field(name="offset", default=None)
    """Kafka offset of that event."""
    rows: int = msgspec.field(name="rows", default=0)
    """Rows published so far."""
    estimate: int | None = msgspec.field(name="estimate", default=None)
    """About how many rows there will be; None: not known."""
    restarts: int = msgspec.field(name="restarts", default=0)
    """How often the copy was restarted because the table was altered."""
    max_rows_per_second: int | None = msgspec.field(name="max_rows_per_second", default=None)
    reason: str = msgspec.field(name="reason", default="")
    """For `refused` and `cancelled`: an encoded problem (schemas.problems)."""


class CopyState(CopyOutcome, kw_only=True, frozen=True, omit_defaults=True):
    """State of the last request for a table, or of a key sweep."""

    ended: tuple[tuple[int, str], ...] = msgspec.field(name="ended", default=())
    """(time, cause) of this table's copies that ended within the last day, oldest first. The cause of a copy
    that only a unit needed ends in " of pipeline NAME"."""
    ended_stop: str = msgspec.field(name="ended_stop", default="")
    """Cause of the stop that the copy's begin ended; the table is stopped again if the copy is given up."""
    next_request: CopyRequest | None = msgspec.field(name="behind", default=None)
    """A request made meanwhile, not by a person; judged once this copy has ended, or at `retry_ms`."""
    retry_ms: int | None = msgspec.field(name="retry_ms", default=None)
    """When `next_request` is judged again, which a limit has postponed; None: none is postponed."""
    keys: bool = msgspec.field(name="keys", default=False)
    """This is a key sweep: only keys are read, no row is brought, and no stop is ended."""
    removed: RemovedRows | None = msgspec.field(name="removed", default=None)
    """Rows that targets may still have; a copy or key sweep that begins later removes them."""
    last_copy: CopyOutcome | None = msgspec.field(name="last_copy", default=None)
    """Beside a key sweep: the table's last copy, which ended before it or was refused meanwhile."""


def find_copy_state(copies: Mapping[str, CopyState], db: str, table: str) -> CopyState | None:
    """Return the state of a table's copy in `Watermark.copies`."""
    return copies.get(format_table_text(db, table))


def select_copy(state: CopyState | None) -> CopyOutcome | None:
    """Return the outcome of the table's last copy, beside which a key sweep may wait, run or have ended."""
    return state.last_copy if state is not None and state.keys else state


class CopyMark(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The mark of a copy: in an `m` event with a definition, the begin of a copy of the table, whatever
    stopped the table before; in the marker of a chunk, the copy that the chunk belongs to.
    """

    id: str = msgspec.field(name="id")
    partial: bool = msgspec.field(name="partial", default=False)
    """Only rows that match a condition are copied, and no rows are deleted for it."""
    begins: int | None = msgspec.field(name="begins", default=None)
    """In markers: Kafka offset of the event with which the copy begins."""
    since: int | None = msgspec.field(name="since", default=None)
    """In markers: offset of an event of the copy after which every event that concerns the chunk's
    window comes.
    """
    keys: bool = msgspec.field(name="keys", default=False)
    """This is a key sweep: its chunks bring keys, and no rows."""
