"""Records that capture writes beside the events, and the names of all topics.

`<prefix>.<source>.watermark` (1 partition, time retention): a `Watermark` a second, key = source name. It says that
everything up to `position` is in the topics, and at which offset each topic touched since the previous one ends.
`<prefix>.<source>.position` (1 partition, compacted): a `StoredPosition` under the key str(gen), written only after
every event before `position` has been acknowledged. A reader takes the record of the highest gen, so that a zombie's
late record can never win; a new gen tombstones the keys of older ones.
"""

from __future__ import annotations

import msgspec

from schemas.position import Position


def table_topic(prefix: str, source: str, db: str, table: str) -> str:
    return f"{prefix}.{source}.{topic_part(db)}.{topic_part(table)}"


def source_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}"


def watermark_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}.watermark"


def position_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}.position"


def topic_part(name: str) -> str:
    """Return `name` with every character Kafka refuses (and "_" itself followed by "x") escaped as `_xHH…_`."""
    out = []
    for char in name:
        if char.isascii() and (char.isalnum() or char in "_-"):
            out.append(char)
        else:
            out.append(f"_x{char.encode().hex()}_")
    return "".join(out)


class Identity(msgspec.Struct, kw_only=True):
    """Which server a position belongs to. `server_uuid` is None on MariaDB."""

    server_uuid: str | None
    server_id: int
    version: str
    gtid_set: str | None


class Anchor(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where the last definition and the last chunk marker of a table stand in its topic, so that a start need not search.

    `definition`, `marker`: offsets; everything of the table at an offset above `end` is read when capture starts.
    `highest`: the highest position in the topic up to `end`.
    """

    definition: int | None = None
    marker: int | None = None
    end: int
    highest: Position | None = None


class StoredPosition(msgspec.Struct, kw_only=True):
    """Where capture resumes: a transaction boundary; everything before it is acknowledged by Kafka."""

    source: str
    gen: int
    epoch: int
    file: str
    pos: int
    identity: Identity
    ts_ms: int
    #: "db.table" whose snapshot is complete (a hint; markers in the topics decide)
    snapshot_done: tuple[str, ...] = ()
    anchors: dict[str, Anchor] = {}  # "db.table" → where its definition and markers are (a hint, too)
    assigned: int = (
        0  # the highest epoch of a coordinator under which the source was captured; 0: never under one
    )


class Watermark(msgspec.Struct, kw_only=True):
    """Captured up to: `commit_ts_ms` is the source's commit time at `position` (its clock's now when idle)."""

    source: str
    gen: int
    position: Position
    file: str
    commit_ts_ms: int
    ts_ms: int
    idle: bool  # True: nothing was in the log behind `position` when this was written
    snapshot_pending: tuple[str, ...] = ()  # "db.table" not yet completely snapshotted
    topics: dict[str, int] = {}  # topic → its last offset, for those written since the previous watermark
    events: int = 0  # captured since capture started (this gen)
    error: str | None = None  # why a table of this source is stopped, if one is
