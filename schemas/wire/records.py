"""Records that capture writes beside the events, and the names of all topics.

`<prefix>.<source>.watermark` (1 partition, time retention): a `Watermark` a second, key = source name. It says that
everything up to `position` is in the topics, and at which offset each topic touched since the previous one ends.
`<prefix>.<source>.position` (1 partition, compacted): a `StoredPosition` under the key str(gen), written only after
every event before `position` has been acknowledged. A reader takes the record of the highest gen, so that a zombie's
late record can never win; a new gen tombstones the keys of older ones.
"""

from __future__ import annotations

import re

import msgspec

from schemas.wire.copies import CopyState
from schemas.wire.position import Position


def table_topic(prefix: str, source: str, db: str, table: str) -> str:
    return f"{prefix}.{source}.{topic_part(db)}.{topic_part(table)}"


def source_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}"


def watermark_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}.watermark"


def position_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}.position"


TOPIC_LENGTH = 249
"""Characters of a topic's name that Kafka takes."""


def topic_refusal(topic: str, table: str) -> str | None:
    """Return why `table` cannot be captured into `topic`: Kafka does not take a topic of this name. None: it does."""
    if len(topic) <= TOPIC_LENGTH:
        return None
    return (
        f"table {table}: its topic's name would have {len(topic)} characters (others than letters, digits, _ and - count up to nine each), and Kafka "
        f"takes {TOPIC_LENGTH}: shorten kafka.prefix or the table's name, or exclude the table"
    )


def topic_part(name: str) -> str:
    """Return `name` with every character Kafka refuses (and "_" itself followed by "x") escaped as `_xHH…_`."""
    out = []
    for char in name:
        if char.isascii() and (char.isalnum() or char in "_-"):
            out.append(char)
        else:
            out.append(f"_x{char.encode().hex()}_")
    return "".join(out)


def unescape(part: str) -> str:
    """Undo `topic_part`."""
    return _ESCAPED.sub(lambda match: bytes.fromhex(match.group(1)).decode(errors="replace"), part)


_ESCAPED = re.compile(r"_x((?:[0-9a-f]{2})+)_")


def place_of_topic(topic: str) -> tuple[str, str]:
    """Return (database, table) of a topic that `table_topic` named: of names as they stand there, only the prefix may hold dots.

    A name that is none of these has no database."""
    db, table = ("", *topic.rsplit(".", 2))[-2:]
    return unescape(db), unescape(table)


class Identity(msgspec.Struct, kw_only=True):
    """The server that a position belongs to. `server_uuid` is None on MariaDB."""

    server_uuid: str | None
    server_id: int
    version: str
    gtid_set: str | None


class Anchor(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The places of a table's last definition and last chunk marker in its topic, so that a start need not search.

    `definition`, `marker`, `stop`, `begin` (of the last copy): offsets; everything of the table at an offset above `end` is read when capture starts.
    `highest`: the highest position in the topic up to `end`.
    """

    definition: int | None = None
    marker: int | None = None
    end: int
    highest: Position | None = None
    stop: int | None = None
    begin: int | None = None


class TableStop(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A stop: no event of a table is published any more, until a copy of the table begins (`rowlock copy`).

    `cause`: one of producer.stops.CAUSES. `at`: of the cause in the source's log (`file`, `pos` for people).
    `reason`: what was seen, one sentence with the table in it; `remedy`: what to do. `since_ms`: when that was, at the source.
    """

    cause: str
    at: Position
    file: str
    pos: int
    reason: str
    remedy: str
    since_ms: int


class LogProof(msgspec.Struct, kw_only=True, frozen=True):
    """An event of the source's log, by which the log is known again: `start`, `end` are its offsets in `file`."""

    file: str
    start: int
    end: int
    digest: str  # of time, type, server id, start and body (producer.sources.binlog.log_proof.digest)


class Shadow(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Statements on `db`.`name`, the table in which gh-ost or pt-online-schema-change makes the next form of `table`: the position
    moves past it, and it counts when the one takes the other's place.

    `at`: (number of the log file, offset) of the last statement that counts here. `statements`: since its CREATE, as they were
    executed in `db`. `triggers`: kinds of changes (INSERT …) that a trigger of `table` takes over into it. `unknown`: why nothing follows from them ("…"). `away`: `table` has left its place, and the shadow not come
    yet. `over`: the shadow is gone, or has taken the place.
    """

    db: str
    name: str
    table: str
    at: tuple[int, int]
    statements: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    unknown: str = ""
    away: bool = False
    over: bool = False


class StoredPosition(msgspec.Struct, kw_only=True):
    """The position from which capture resumes: a transaction boundary; everything before it is acknowledged by Kafka."""

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
        0  # the highest assignment of a coordinator under which the source was captured; 0: never under one
    )
    stops: dict[str, TableStop] = {}  # "db.table" → why nothing of it is published, whatever happens
    #: XA transactions prepared before `pos` and not ended there → the tables (database, name) that each changes
    prepared: dict[str, tuple[tuple[str, str], ...]] = {}
    #: The last event that ends at `pos` (or before it), at a file's beginning also the last one of the file before.
    #: Empty: written by a version that did not keep it. `identity.gtid_set` is of this position, too.
    proof: tuple[LogProof, ...] = ()
    copies: dict[str, CopyState] = {}  # "db.table" → what became of the last request to copy it
    copy_requests: int = 0  # offset of the next request to read in `<prefix>.<source>.copy`
    shadows: tuple[Shadow, ...] = ()  # of captured tables that a tool alters just now


#: `Watermark.ended` of a source whose snapshot was all there was to do.
SNAPSHOT_COMPLETE = "its snapshot is complete, as `snapshot: only` asked for"


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
    error: str | None = None  # which tables are left out, and why
    left_out: dict[
        str, str
    ] = {}  # the same: "db.table" → why ("…seen…: remedy"); nothing of it was ever published
    ended: str | None = None  # the last one of a process that ends, or begins anew: why
    restarts: bool = False  # with `ended`: it begins anew by itself
    stops: dict[str, TableStop] = {}  # "db.table" → of the tables that are to be captured now
    copies: dict[str, CopyState] = {}  # "db.table" → copies that wait or run, or came to an end within a day
