"""Copies of one table: what is asked of capture, and what capture says of it.

`<prefix>.<source>.copy` (1 partition, compacted, key = `CopyRequest.id`): requests, by people and by apply units that cannot go on.
Capture reads them in order, and keeps in `StoredPosition.copies` what became of each, so a request is carried out once whatever
restarts. `Watermark.copies` shows the same to everybody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from schemas.table.names import table_text
from schemas.wire.position import Position

CopyPhase = Literal["waiting", "running", "done", "refused", "cancelled"]


def copy_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}.copy"


class RepairLimits(msgspec.Struct, kw_only=True, frozen=True):
    """Of copies that nobody has asked for by hand (`repair:` of a pipeline); `max_per_day`: of one table."""

    max_rows: int
    max_per_day: int


class CopyRequest(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Copy the table `db`.`table` again. `by`: "operator", "pipeline NAME", "capture". `requested_ms`: since 1970.

    `where`: an SQL condition of the source; only rows that match it are copied, and nothing is deleted for it. `cause`: why the table
    needs it (one of producer.stops.CAUSES, or a word of the apply side), empty by hand. `limits`: None: whatever its size.
    `after`: Kafka offset in the table's topic; a copy that begins behind it does what is asked already. `cancel`: take
    back the copy that waits or runs instead. `max_rows_per_second`: None: the source's `copy_rows_per_second`; 0: as fast as the source
    gives them. `rate_only`: the copy that waits or runs goes on, with this `max_rows_per_second` (None: no limit); nothing else of it changes.
    """

    id: str
    db: str
    table: str
    by: str
    requested_ms: int
    where: str | None = None
    cause: str = ""
    limits: RepairLimits | None = None
    after: int | None = None
    cancel: bool = False
    max_rows_per_second: int | None = None
    rate_only: bool = False


class CopyState(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """State of the last request for a table. Times in ms since 1970.

    `begin`, `offset`: position and Kafka offset of the event with which the table's last copy begins in its topic. `rows`: published so
    far; `estimate`: how many there will be about, None: not known. `restarts`: how often it began anew because the table was
    altered. `reason`: of `refused` and `cancelled`: what was seen, and behind the last colon what to do. `ended`: (time, cause) of
    this table's copies that ended within the last day, oldest first. `ended_stop`: cause of the stop that its begin ended; the table
    is stopped again if the copy is given up. `behind`: asked meanwhile by no person; judged once this copy has ended.
    """

    id: str
    db: str
    table: str
    by: str
    phase: CopyPhase
    requested_ms: int
    where: str | None = None
    cause: str = ""
    began_ms: int | None = None
    ended_ms: int | None = None
    begin: Position | None = None
    offset: int | None = None
    rows: int = 0
    estimate: int | None = None
    restarts: int = 0
    max_rows_per_second: int | None = None
    reason: str = ""
    ended: tuple[tuple[int, str], ...] = ()
    ended_stop: str = ""
    behind: CopyRequest | None = None


def copy_of(copies: Mapping[str, CopyState], db: str, table: str) -> CopyState | None:
    """Return what `Watermark.copies` says of a table."""
    return copies.get(table_text(db, table))


class CopyMark(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """In an `m` event with a definition: a copy of the table begins here, whatever stopped the table before. In the marker of a
    chunk: whose chunk it is.

    `partial`: only rows of a condition are copied, and nothing is deleted for it. In markers: `begins`: Kafka offset of the event with which
    the copy begins; `since`: offset of an event of the copy behind which every event stands that concerns the chunk's window.
    """

    id: str
    partial: bool = False
    begins: int | None = None
    since: int | None = None
