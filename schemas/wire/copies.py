"""Copies of one table: what is asked of capture, and what capture says of it.

`<prefix>.<source>.copy` (1 partition, compacted, key = `CopyRequest.id`): requests, by people and by apply units that cannot go on.
Capture reads them in order, and keeps in `StoredPosition.copies` what became of each, so a request is carried out once whatever
restarts. `Watermark.copies` shows the same to everybody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from schemas.table.names import format_table_text
from schemas.wire.position import Position

CopyPhase = Literal["waiting", "running", "done", "refused", "cancelled"]


def copy_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}.copy"


class RepairLimits(msgspec.Struct, kw_only=True, frozen=True):
    """Of copies that nobody has asked for by hand (`repair:` of a pipeline); `max_per_day`: of one table."""

    max_rows: int = msgspec.field(name="max_rows")
    max_per_day: int = msgspec.field(name="max_per_day")


class CopyRequest(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Copy the table `db`.`table` again. `by`: "operator", "pipeline NAME", "capture". `requested_ms`: since 1970.

    `where`: an SQL condition of the source; only rows that match it are copied, and nothing is deleted for it. `cause`: why the table
    needs it (one of producer.stops.CAUSES, or a word of the apply side), empty by hand. `limits`: None: whatever its size.
    `after`: Kafka offset in the table's topic; a copy that begins behind it does what is asked already. `cancel`: take
    back the copy that waits or runs instead. `max_rows_per_second`: None: the source's `copy_rows_per_second`; 0: as fast as the source
    gives them. `rate_only`: the copy that waits or runs goes on, with this `max_rows_per_second` (None: no limit); nothing else of it changes.
    """

    id: str = msgspec.field(name="id")
    db: str = msgspec.field(name="db")
    table: str = msgspec.field(name="table")
    by: str = msgspec.field(name="by")
    requested_ms: int = msgspec.field(name="requested_ms")
    where: str | None = msgspec.field(name="where", default=None)
    cause: str = msgspec.field(name="cause", default="")
    limits: RepairLimits | None = msgspec.field(name="limits", default=None)
    after: int | None = msgspec.field(name="after", default=None)
    cancel: bool = msgspec.field(name="cancel", default=False)
    max_rows_per_second: int | None = msgspec.field(name="max_rows_per_second", default=None)
    rate_only: bool = msgspec.field(name="rate_only", default=False)


class CopyState(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """State of the last request for a table. Times in ms since 1970.

    `begin`, `offset`: position and Kafka offset of the event with which the table's last copy begins in its topic. `rows`: published so
    far; `estimate`: how many there will be about, None: not known. `restarts`: how often it began anew because the table was
    altered. `reason`: of `refused` and `cancelled`: what was seen, and behind the last colon what to do. `ended`: (time, cause) of
    this table's copies that ended within the last day, oldest first. `ended_stop`: cause of the stop that its begin ended; the table
    is stopped again if the copy is given up. `behind`: asked meanwhile by no person; judged once this copy has ended.
    """

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
    offset: int | None = msgspec.field(name="offset", default=None)
    rows: int = msgspec.field(name="rows", default=0)
    estimate: int | None = msgspec.field(name="estimate", default=None)
    restarts: int = msgspec.field(name="restarts", default=0)
    max_rows_per_second: int | None = msgspec.field(name="max_rows_per_second", default=None)
    reason: str = msgspec.field(name="reason", default="")
    ended: tuple[tuple[int, str], ...] = msgspec.field(name="ended", default=())
    ended_stop: str = msgspec.field(name="ended_stop", default="")
    behind: CopyRequest | None = msgspec.field(name="behind", default=None)


def find_copy_state(copies: Mapping[str, CopyState], db: str, table: str) -> CopyState | None:
    """Return what `Watermark.copies` says of a table."""
    return copies.get(format_table_text(db, table))


class CopyMark(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """In an `m` event with a definition: a copy of the table begins here, whatever stopped the table before. In the marker of a
    chunk: whose chunk it is.

    `partial`: only rows of a condition are copied, and nothing is deleted for it. In markers: `begins`: Kafka offset of the event with which
    the copy begins; `since`: offset of an event of the copy behind which every event stands that concerns the chunk's window.
    """

    id: str = msgspec.field(name="id")
    partial: bool = msgspec.field(name="partial", default=False)
    begins: int | None = msgspec.field(name="begins", default=None)
    since: int | None = msgspec.field(name="since", default=None)
