"""Records that capture writes beside the events, and the names of all topics.

`<prefix>.<source>.watermark` (1 partition, time retention): one `Watermark` a second, key = source
name. It states that everything up to `position` is in the topics, and at which offset each topic
written since the previous one ends.

`<prefix>.<source>.position` (1 partition, compacted): a `StoredPosition` under the key str(gen),
written only after every event before `position` has been acknowledged. A reader takes the record of the
highest gen, so that a zombie's late record can never win; a new gen tombstones the keys of older ones.
"""

from __future__ import annotations

import re

import msgspec

from schemas.wire.copies import CopyState
from schemas.wire.position import Position


def format_former_table_topic(prefix: str, source: str, db: str, table: str) -> str:
    """Return the name that versions without `StoredPosition.topics` compute for a table's topic.

    Most tables still have it, but only the record shows which one a table has (docs/adr/0034).
    """
    return f"{prefix}.{source}.{escape_former_part(db)}.{escape_former_part(table)}"


def format_source_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}"


def format_watermark_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}.watermark"


def format_position_topic(prefix: str, source: str) -> str:
    return f"{prefix}.{source}.position"


def escape_former_part(name: str) -> str:
    """Return `name` with every character that Kafka refuses as `_x<utf-8>_`.

    A literal text of that form stays unchanged.
    """
    out = []
    for char in name:
        if char.isascii() and (char.isalnum() or char in "_-"):
            out.append(char)
        else:
            out.append(f"_x{char.encode().hex()}_")
    return "".join(out)


def unescape_topic_part(part: str) -> str:
    """Return a part of a topic's name for display; decisions must not depend on it."""
    return _ESCAPED.sub(lambda match: bytes.fromhex(match.group(1)).decode(errors="replace"), part)


_ESCAPED = re.compile(r"_x((?:[0-9a-f]{2})+)_")


def parse_topic_origin(topic: str) -> tuple[str, str] | None:
    """Return (prefix, source) of a table's topic, after which two parts without dots follow; None: too
    few parts.
    """
    parts = topic.rsplit(".", 3)
    return (parts[0], parts[1]) if len(parts) == 4 else None


def parse_topic_source(topic: str) -> str:
    """Return the source of a table's topic; "": the name is not one of a table's topic."""
    origin = parse_topic_origin(topic)
    return "" if origin is None else origin[1]


class Identity(msgspec.Struct, kw_only=True):
    """The server that a position belongs to. `server_uuid` is None on MariaDB."""

    server_uuid: str | None = msgspec.field(name="server_uuid")
    server_id: int = msgspec.field(name="server_id")
    version: str = msgspec.field(name="version")
    gtid_set: str | None = msgspec.field(name="gtid_set")

    def is_same_server(self, other: Identity) -> bool:
        """Return whether both are one server, by its uuid (MariaDB: by its id)."""
        if self.server_uuid is None and other.server_uuid is None:
            return self.server_id == other.server_id
        return self.server_uuid == other.server_uuid


class Anchor(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The places of a table's last definition and last chunk marker in its topic, so that a start need
    not search.

    Everything of the table at an offset above `end` is read when capture starts.
    """

    definition: int | None = msgspec.field(name="definition", default=None)
    """Offset of the last definition."""
    marker: int | None = msgspec.field(name="marker", default=None)
    """Offset of the last chunk marker."""
    end: int = msgspec.field(name="end")
    highest: Position | None = msgspec.field(name="highest", default=None)
    """The highest position in the topic up to `end`."""
    stop: int | None = msgspec.field(name="stop", default=None)
    """Offset of the last stop."""
    begin: int | None = msgspec.field(name="begin", default=None)
    """Offset of the begin of the last copy."""
    topic_id: str = msgspec.field(name="topic_id", default="")
    """Id of the topic in Kafka; "": not known."""
    settled: tuple[int, int] = msgspec.field(name="settled", default=(-1, 0))
    """(offset, gen): all of the topic up to this offset is before the record's position, and has an event of
    the gen. -1: not known. Later events, up to `end`, may be of an earlier process, which had read further.
    """


class TableStop(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A stop: no event of a table is published any more, until a copy of the table begins (`rowlock
    copy`).
    """

    cause: str = msgspec.field(name="cause")
    """One of producer.stops.CAUSES."""
    at: Position = msgspec.field(name="at")
    """Position of the cause in the source's log; `file`, `pos`: the same for people."""
    file: str = msgspec.field(name="file")
    pos: int = msgspec.field(name="pos")
    reason: str = msgspec.field(name="reason")
    """What was seen, in one sentence that names the table."""
    remedy: str = msgspec.field(name="remedy")
    """What a person must do."""
    since_ms: int = msgspec.field(name="since_ms")
    """Time of the cause at the source."""


class LogProof(msgspec.Struct, kw_only=True, frozen=True):
    """An event of the source's log by which the log is recognised; `start`, `end` are its offsets in
    `file`.
    """

    file: str = msgspec.field(name="file")
    start: int = msgspec.field(name="start")
    end: int = msgspec.field(name="end")
    #: digest of time, type, server id, start and body (producer.sources.binlog.log_proof)
    digest: str = msgspec.field(name="digest")


class ShadowTable(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Statements on `db`.`name`, the table in which gh-ost or pt-online-schema-change builds the next
    form of `table`.

    The position moves past them; they take effect when the shadow replaces the table.
    """

    db: str = msgspec.field(name="db")
    name: str = msgspec.field(name="name")
    table: str = msgspec.field(name="table")
    at: tuple[int, int] = msgspec.field(name="at")
    """(number of the log file, offset) of the last statement that is included."""
    statements: tuple[str, ...] = msgspec.field(name="statements", default=())
    """The statements since its CREATE, as they were executed in `db`."""
    triggers: tuple[str, ...] = msgspec.field(name="triggers", default=())
    """Kinds of changes (INSERT …) that a trigger of `table` copies into it."""
    unknown: str = msgspec.field(name="unknown", default="")
    """Why the statements do not determine the new form; "": they do."""
    away: bool = msgspec.field(name="away", default=False)
    """`table` was renamed away, and the shadow has not replaced it yet."""
    over: bool = msgspec.field(name="over", default=False)
    """The shadow was deleted, or has replaced the table."""


class PreparedPlace(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The place in the log of the rows of an XA transaction that is prepared and has not ended: between `pos`
    and `end` of `file`.
    """

    file: str = msgspec.field(name="file")
    pos: int = msgspec.field(name="pos")
    end: int = msgspec.field(name="end")
    ts_ms: int = msgspec.field(name="ts_ms")
    """Time of XA PREPARE at the source."""
    altered: tuple[tuple[str, str], ...] = msgspec.field(name="altered", default=())
    """Tables (database, name) that a statement has concerned since."""
    gtid: str = msgspec.field(name="gtid", default="")
    """GTID of XA PREPARE; "": it has none, or a version stored it that did not keep it."""


class StoredPosition(msgspec.Struct, kw_only=True):
    """The position from which capture resumes: a transaction boundary; everything before it is
    acknowledged by Kafka. `ts_ms`: the source time that it has reached (`Watermark.commit_ts_ms`).
    """

    source: str = msgspec.field(name="source")
    gen: int = msgspec.field(name="gen")
    epoch: int = msgspec.field(name="epoch")
    file: str = msgspec.field(name="file")
    pos: int = msgspec.field(name="pos")
    identity: Identity = msgspec.field(name="identity")
    ts_ms: int = msgspec.field(name="ts_ms")
    #: "db.table" with a complete snapshot (a hint; markers in the topics decide)
    snapshot_done: tuple[str, ...] = msgspec.field(name="snapshot_done", default=())
    #: "db.table" → where its definition and markers are (a hint, too)
    anchors: dict[str, Anchor] = msgspec.field(name="anchors", default_factory=dict)
    #: the highest assignment of a coordinator under which the source was captured; 0: never under one
    assigned: int = msgspec.field(name="assigned", default=0)
    #: "db.table" → the stop that prevents any of its events from being published
    stops: dict[str, TableStop] = msgspec.field(name="stops", default_factory=dict)
    #: XA transactions prepared before `pos` and not ended there → the tables (database, name) that each
    #: one changes
    prepared: dict[str, tuple[tuple[str, str], ...]] = msgspec.field(name="prepared", default_factory=dict)
    #: where the rows of each of them are. Missing: prepared under a version that did not keep the place
    prepared_at: dict[str, PreparedPlace] = msgspec.field(name="prepared_at", default_factory=dict)
    #: The last event that ends at `pos` (or before it), at a file's beginning also the last one of the
    #: file before. Empty: written by a version that did not keep it. `identity.gtid_set` is of this
    #: position, too.
    proof: tuple[LogProof, ...] = msgspec.field(name="proof", default=())
    #: "db.table" → state of the last request to copy it
    copies: dict[str, CopyState] = msgspec.field(name="copies", default_factory=dict)
    #: offset of the next request to read in `<prefix>.<source>.copy`
    copy_requests: int = msgspec.field(name="copy_requests", default=0)
    #: of captured tables that a tool is altering
    shadows: tuple[ShadowTable, ...] = msgspec.field(name="shadows", default=())
    #: the era with which the source's history began; later ones are of other servers of the source
    #: (docs/adr/0047). None: `epoch`.
    began: int | None = msgspec.field(name="began", default=None)
    #: "db.table" → the topic that is assigned to it (schemas/wire/topic_names.py). None: written by a
    #: version that computed the names.
    topics: dict[str, str] | None = msgspec.field(name="topics", default=None)

    @property
    def first_era(self) -> int:
        """The era with which the source's history began."""
        return self.epoch if self.began is None else self.began


def encode_claim_key(gen: int) -> bytes:
    """Return the key of the record without a value that a capture process writes into the watermark topic
    before its first event: watermarks of lower generations after it do not count."""
    return f"claim:{gen}".encode()


def decode_claim_key(key: bytes | None) -> int | None:
    """Return the generation that such a record claims; None: the key is another one."""
    kind, _, gen = (key or b"").partition(b":")
    return int(gen) if kind == b"claim" and gen.isdigit() else None


#: `Watermark.ended` of a source that had nothing to do but its snapshot.
SNAPSHOT_COMPLETE = "its snapshot is complete, as `snapshot: only` asked for"


class Watermark(msgspec.Struct, kw_only=True):
    """The progress of capture. `commit_ts_ms`: the source time that `position` has reached, by the clock of
    the source's server: all transactions that it had committed before that time are before `position`.
    `ts_ms`: capture's own time.
    """

    source: str = msgspec.field(name="source")
    gen: int = msgspec.field(name="gen")
    position: Position = msgspec.field(name="position")
    file: str = msgspec.field(name="file")
    commit_ts_ms: int = msgspec.field(name="commit_ts_ms")
    ts_ms: int = msgspec.field(name="ts_ms")
    #: True: the log contained nothing after `position` when this was written
    idle: bool = msgspec.field(name="idle")
    #: "db.table" not yet completely snapshotted
    snapshot_pending: tuple[str, ...] = msgspec.field(name="snapshot_pending", default=())
    #: topic → its last offset, for those written since the previous watermark
    topics: dict[str, int] = msgspec.field(name="topics", default_factory=dict)
    events: int = msgspec.field(name="events", default=0)  # captured since capture started (this gen)
    error: str | None = msgspec.field(name="error", default=None)  # which tables are left out, and why
    #: the same: "db.table" → why ("…seen…: remedy"); none of its events was ever published
    left_out: dict[str, str] = msgspec.field(name="left_out", default_factory=dict)
    #: in the last watermark of a process that ends or restarts: the reason
    ended: str | None = msgspec.field(name="ended", default=None)
    restarts: bool = msgspec.field(name="restarts", default=False)  # with `ended`: it restarts by itself
    #: "db.table" → stop, of the tables that are to be captured now
    stops: dict[str, TableStop] = msgspec.field(name="stops", default_factory=dict)
    #: "db.table" → copies that wait or run, or ended within a day
    copies: dict[str, CopyState] = msgspec.field(name="copies", default_factory=dict)
    #: XA transactions with rows of captured tables that are open at `position`, the oldest of them: XID →
    #: where their rows are
    prepared: dict[str, PreparedPlace] = msgspec.field(name="prepared", default_factory=dict)
