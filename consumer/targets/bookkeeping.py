"""The tables that rowlock keeps in each target, and their statements, one class for each table
(docs/reference/bookkeeping.md).

These tables record how far a unit is applied, in the same transactions as the rows. The statements are
the same for all dialects; where databases differ, the dialect's `Syntax` is used. Rendering is pure;
sessions run the statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby

import orjson

from consumer.ordering.model import (
    AgedEntry,
    ApplyUnit,
    KeptRows,
    LaneProgress,
    QuarantineEntry,
    ResolvedEntry,
    UnitState,
)
from consumer.targets.displaced_rows import MARKED
from consumer.targets.sql import Fragment, Params, Syntax, qualify_table, render_placeholders
from schemas.wire.position import Position

#: column → neutral type; the first `keys` columns are the primary key.
_TABLES: dict[str, tuple[int, dict[str, str]]] = {
    "rowlock_progress": (
        3,
        {
            "pipeline": "name", "topic": "topic", "lane": "int", "epoch": "big", "attempt": "big",
            "topic_id": "name", "kafka_offset": "big", "position": "name", "gen": "big", "layout": "text",
            "commit_ts_ms": "big", "updated_at": "now",
        },
    ),
    "rowlock_unit": (
        2,
        {"pipeline": "name", "topic": "topic", "definition": "text?", "ddl": "text?", "stopped": "text?",
         "updated_at": "now"},
    ),
    "rowlock_quarantine": (
        4,
        {"pipeline": "name", "topic": "topic", "kafka_offset": "big", "part": "int", "table_name": "text",
         "row_key": "text", "folded_key": "text", "event": "text", "error": "text", "commit_ts_ms": "big",
         "held_at": "now"},
    ),
    "rowlock_quarantine_closed": (
        1,
        {"id": "id", "pipeline": "name", "topic": "topic", "kafka_offset": "big", "part": "int",
        "table_name": "text",
         "row_key": "text", "folded_key": "text", "event": "text", "error": "text", "commit_ts_ms": "big",
         "held_at": "now", "closed": "text", "closed_at": "now"},
    ),
    "rowlock_displaced": (
        1,
        {"id": "id", "pipeline": "name", "topic": "topic", "table_name": "text", "row_data": "text",
         "displaced_by": "text", "displaced_at": "now"},
    ),
    "rowlock_kept": (
        3,
        {"pipeline": "name", "topic": "topic", "key_digest": "name", "table_name": "text", "row_key": "text",
         "kafka_offset": "big", "statement": "text", "kept_at": "now"},
    ),
}  # fmt: skip

#: The rights that sessions need on the tables, in addition to creating them.
_RIGHTS = {
    "rowlock_progress": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "rowlock_unit": ("SELECT", "INSERT", "UPDATE"),
    "rowlock_quarantine": ("SELECT", "INSERT", "DELETE"),
    "rowlock_quarantine_closed": ("SELECT", "INSERT", "DELETE"),
    "rowlock_displaced": ("SELECT", "INSERT", "UPDATE"),
    "rowlock_kept": ("SELECT", "INSERT", "DELETE"),
}

#: The condition for the rows of an apply unit.
_OF_UNIT = "pipeline = %s AND topic = %s"


@dataclass(frozen=True, slots=True)
class BookkeepingTables:
    """The bookkeeping tables in `schema`."""

    schema: str
    syntax: Syntax

    def list_names(self) -> tuple[str, ...]:
        return tuple(_TABLES)

    def list_rights(self) -> dict[str, tuple[str, ...]]:
        """Return the rights that the user needs on each table once it exists."""
        return dict(_RIGHTS)

    def qualify_name(self, name: str) -> str:
        """Return a table's quoted, qualified name."""
        return qualify_table(self.syntax.quote, self.schema, name)

    def build_create(self, name: str) -> str:
        keys, columns = _TABLES[name]
        body = [f"{column} {self.syntax.types[kind]}" for column, kind in columns.items()]
        body.append(f"PRIMARY KEY ({', '.join(list(columns)[:keys])})")
        return self.syntax.create(self.qualify_name(name), ", ".join(body))

    def build_insert(self, name: str, columns: Sequence[str], rows: int) -> str:
        return self.syntax.insert(self.qualify_name(name), columns, rows)


_LANE_COLUMNS = (
    "lane",
    "epoch",
    "attempt",
    "topic_id",
    "kafka_offset",
    "position",
    "gen",
    "layout",
    "commit_ts_ms",
)


@dataclass(frozen=True, slots=True)
class LaneStatements:
    """Statements on `rowlock_progress`, which has one row for each lane of a unit; the rows are also its
    fence.
    """

    tables: BookkeepingTables

    def build_select(
        self, unit: ApplyUnit, lanes: Sequence[int] | None = None, *, lock: bool = False
    ) -> Fragment:
        """Select lane rows in lane order.

        With `lock` it is the guard: a locking read sees the latest commit.
        """
        params: Params = [unit.pipeline, unit.topic]
        some = ""
        if lanes is not None:
            some = f" AND lane IN {render_placeholders(len(lanes))}"
            params.extend(lanes)
        text = (
            f"SELECT {', '.join(_LANE_COLUMNS)} FROM {self.tables.qualify_name('rowlock_progress')} WHERE "
            f"{_OF_UNIT}{some} ORDER BY lane"
        )
        return self.tables.syntax.locked(text) if lock else text, params

    def build_insert(self, unit: ApplyUnit, rows: Sequence[LaneProgress]) -> Fragment:
        params = [value for row in rows for value in (unit.pipeline, unit.topic, *_list_lane_values(row))]
        return self.tables.build_insert(
            "rowlock_progress", ("pipeline", "topic", *_LANE_COLUMNS), len(rows)
        ), params

    def build_updates(self, unit: ApplyUnit, rows: Sequence[LaneProgress]) -> list[tuple[Fragment, int]]:
        """Return (statement, rows it must match) for each group of lanes that get the same values.

        Idle lanes all write the end of the batch, so there are mostly one or two groups.
        """
        ordered = sorted(rows, key=_list_lane_values_without_lane)
        return [
            self._update_group(unit, list(group))
            for _, group in groupby(ordered, key=_list_lane_values_without_lane)
        ]

    def _update_group(self, unit: ApplyUnit, rows: list[LaneProgress]) -> tuple[Fragment, int]:
        row = rows[0]
        text = (
            f"UPDATE {self.tables.qualify_name('rowlock_progress')} SET topic_id = %s, kafka_offset = "
            "%s, position = %s, gen = %s, layout = %s, commit_ts_ms = %s, updated_at = "
            f"{self.tables.syntax.now} WHERE {_OF_UNIT} AND lane IN {render_placeholders(len(rows))} "
            "AND epoch = %s AND attempt = %s"
        )
        params: Params = [
            row.topic_id, row.offset, _encode_position(row.position), row.gen, row.layout, row.commit_ts_ms,
            unit.pipeline, unit.topic, *(other.lane for other in rows), row.epoch, row.attempt,
        ]  # fmt: skip
        return (text, params), len(rows)

    def raise_epoch(self, unit: ApplyUnit, epoch: int) -> Fragment:
        text = (
            f"UPDATE {self.tables.qualify_name('rowlock_progress')} SET epoch = %s, "
            f"updated_at = {self.tables.syntax.now}"
        )
        return f"{text} WHERE {_OF_UNIT}", [epoch, unit.pipeline, unit.topic]

    def raise_attempt(self, unit: ApplyUnit, epoch: int) -> Fragment:
        text = f"UPDATE {self.tables.qualify_name('rowlock_progress')} SET attempt = attempt + 1"
        return f"{text} WHERE {_OF_UNIT} AND epoch = %s", [unit.pipeline, unit.topic, epoch]

    def build_delete(self, unit: ApplyUnit) -> Fragment:
        text = f"DELETE FROM {self.tables.qualify_name('rowlock_progress')} WHERE {_OF_UNIT}"
        return text, [unit.pipeline, unit.topic]


def parse_lane_row(row: Sequence[object]) -> LaneProgress:
    """Return the LaneProgress of a row of `LaneStatements.build_select`."""
    lane, epoch, attempt, topic_id, offset, position, gen, layout, commit_ts_ms = row
    number: Callable[[object], int] = int  # type: ignore[assignment]
    epoch_, file, pos, ordinal = orjson.loads(str(position))
    return LaneProgress(
        number(lane), number(epoch), number(attempt), str(topic_id), number(offset),
        (epoch_, file, pos, ordinal), number(gen), str(layout), number(commit_ts_ms),
    )  # fmt: skip


def _encode_position(position: Position) -> str:
    return orjson.dumps(position).decode()


def _list_lane_values(row: LaneProgress) -> tuple[object, ...]:
    return (
        row.lane, row.epoch, row.attempt, row.topic_id, row.offset, _encode_position(row.position), row.gen,
        row.layout, row.commit_ts_ms,
    )  # fmt: skip


def _list_lane_values_without_lane(row: LaneProgress) -> tuple[object, ...]:
    return _list_lane_values(row)[1:]


NO_STATE = UnitState(None, None, None)


@dataclass(frozen=True, slots=True)
class UnitStatements:
    """Statements on `rowlock_unit`, which has one row for each unit: active definition, schema change, and
    cause of its stop.
    """

    tables: BookkeepingTables

    def build_select(self, unit: ApplyUnit) -> Fragment:
        since = self.tables.syntax.millis("updated_at")
        text = (
            f"SELECT definition, ddl, stopped, {since} FROM "
            f"{self.tables.qualify_name('rowlock_unit')} WHERE {_OF_UNIT}"
        )
        return text, [unit.pipeline, unit.topic]

    def select_all(self, pipeline: str, *, lock: bool = False) -> Fragment:
        """Select all units of a pipeline in the order of topics: the topic, then the columns of
        `build_select`.
        """
        text = f"{self._build_pipeline_select()} ORDER BY topic"
        return self.tables.syntax.locked(text) if lock else text, [pipeline]

    def select_some(self, pipeline: str, topics: Sequence[str]) -> Fragment:
        """Select the units of these topics: the topic, then the columns of `build_select`."""
        text = f"{self._build_pipeline_select()} AND topic IN {render_placeholders(len(topics))}"
        return text, [pipeline, *topics]

    def _build_pipeline_select(self) -> str:
        since = self.tables.syntax.millis("updated_at")
        return (
            f"SELECT topic, definition, ddl, stopped, {since} FROM "
            f"{self.tables.qualify_name('rowlock_unit')} WHERE pipeline = %s"
        )

    def select_topics(self, pipeline: str, *, defined: bool = False) -> Fragment:
        """Select the topics of a pipeline's units. `defined`: only of those that have a definition."""
        only = " AND definition IS NOT NULL" if defined else ""
        text = (
            f"SELECT topic FROM {self.tables.qualify_name('rowlock_unit')} WHERE pipeline = %s{only} "
            "ORDER BY topic"
        )
        return text, [pipeline]

    def build_insert(self, unit: ApplyUnit) -> Fragment:
        return self.tables.build_insert("rowlock_unit", ("pipeline", "topic"), 1), [unit.pipeline, unit.topic]

    def build_update(self, unit: ApplyUnit, state: UnitState) -> Fragment:
        text = (
            f"UPDATE {self.tables.qualify_name('rowlock_unit')} SET definition = %s, ddl = %s, stopped = %s, "
            f"updated_at = {self.tables.syntax.now} WHERE {_OF_UNIT}"
        )
        return text, [state.definition, state.ddl, state.stopped, unit.pipeline, unit.topic]

    def update_stopped(self, unit: ApplyUnit, message: str | None, *, still: bool = False) -> Fragment:
        """Set why a unit is stopped, or None if it is not.

        `still`: the cause is the same as before the retry, and the unit is stopped since then.
        """
        text = f"UPDATE {self.tables.qualify_name('rowlock_unit')} SET stopped = %s"
        if message is not None and not still:
            text += f", updated_at = {self.tables.syntax.now}"
        return f"{text} WHERE {_OF_UNIT}", [message, unit.pipeline, unit.topic]


def parse_unit_rows(rows: Sequence[Sequence[object]]) -> UnitState | None:
    """Return the UnitState of the rows of `UnitStatements.build_select`; None if there is no row."""
    if not rows:
        return None
    definition, ddl, stopped = (None if value is None else str(value) for value in rows[0][:3])
    since = rows[0][3]
    return UnitState(definition, ddl, stopped, int(str(since)) if stopped and since is not None else None)


def parse_units_by_topic(rows: Sequence[Sequence[object]]) -> dict[str, UnitState]:
    """Return topic → UnitState of the rows of `UnitStatements.select_all`."""
    return {str(topic): parse_unit_rows([row]) or NO_STATE for topic, *row in rows}


UNITS_A_STATEMENT = 500
"""Units that one statement selects by their topics: servers limit the number of parameters."""
ENTRIES_A_STATEMENT = 500
"""Quarantine entries that one statement selects or inserts: a key may have had thousands of changes."""
CHARACTERS_A_STATEMENT = 1 << 20
"""Characters of the quarantine entries that one statement inserts, unless one entry alone has more."""
_QUARANTINE_COLUMNS = (
    "kafka_offset",
    "part",
    "table_name",
    "row_key",
    "folded_key",
    "event",
    "error",
    "commit_ts_ms",
)


@dataclass(frozen=True, slots=True)
class QuarantineStatements:
    """Statements on `rowlock_quarantine`, the rows that wait for a person, and
    `rowlock_quarantine_closed`, their history.
    """

    tables: BookkeepingTables

    def build_select(self, unit: ApplyUnit) -> Fragment:
        """Select the entries of a unit, each with its age in milliseconds."""
        syntax = self.tables.syntax
        age = f"{syntax.millis(syntax.now)} - {syntax.millis('held_at')}"
        text = (
            f"SELECT {', '.join(_QUARANTINE_COLUMNS)}, {age} FROM "
            f"{self.tables.qualify_name('rowlock_quarantine')} WHERE {_OF_UNIT}"
        )
        return f"{text} ORDER BY kafka_offset, part", [unit.pipeline, unit.topic]

    def select_closed(self, unit: ApplyUnit, rows: int) -> Fragment:
        """Select the last `rows` entries of the history, the newest first."""
        syntax = self.tables.syntax
        columns = (*_QUARANTINE_COLUMNS, "closed", syntax.millis("held_at"), syntax.millis("closed_at"))
        closed = self.tables.qualify_name("rowlock_quarantine_closed")
        text = f"SELECT {', '.join(columns)} FROM {closed} WHERE {_OF_UNIT}"
        return syntax.page(text, "id DESC", rows), [unit.pipeline, unit.topic]

    def select_expired(self, pipeline: str, older_ms: int) -> Fragment:
        """Select the ids of entries of the history that are older than `older_ms`, by the server's clock, at
        most `ENTRIES_A_STATEMENT`.
        """
        syntax = self.tables.syntax
        age = f"{syntax.millis(syntax.now)} - {syntax.millis('closed_at')}"
        text = f"SELECT id FROM {self.tables.qualify_name('rowlock_quarantine_closed')}"
        return syntax.page(f"{text} WHERE pipeline = %s AND {age} > %s", "id", ENTRIES_A_STATEMENT), [
            pipeline,
            older_ms,
        ]

    def delete_closed(self, ids: Sequence[object]) -> Fragment:
        """Delete entries of the history by id."""
        closed = self.tables.qualify_name("rowlock_quarantine_closed")
        return f"DELETE FROM {closed} WHERE id IN {render_placeholders(len(ids))}", list(ids)

    def build_insert(self, unit: ApplyUnit, held: Sequence[QuarantineEntry]) -> list[Fragment]:
        """Insert entries. They are divided, because servers limit the size of a statement."""
        columns = ("pipeline", "topic", *_QUARANTINE_COLUMNS)
        return [
            (
                self.tables.build_insert("rowlock_quarantine", columns, len(some)),
                [v for entry in some for v in (unit.pipeline, unit.topic, *_list_quarantine_values(entry))],
            )
            for some in _split_entries(held)
        ]

    def build_close(self, unit: ApplyUnit, ids: Sequence[tuple[int, int]], why: str) -> list[Fragment]:
        """Move entries by (offset, part) to the history."""
        return [
            fragment
            for which, values in _select_entries(ids)
            for fragment in self._build_close(unit, which, values, why)
        ]

    def build_drop(self, unit: ApplyUnit, ids: Sequence[tuple[int, int]]) -> list[Fragment]:
        """Delete entries by (offset, part)."""
        held = self.tables.qualify_name("rowlock_quarantine")
        return [
            (f"DELETE FROM {held} WHERE {_OF_UNIT} AND {which}", [unit.pipeline, unit.topic, *values])
            for which, values in _select_entries(ids)
        ]

    def close_before(self, unit: ApplyUnit, offset: int, why: str) -> list[Fragment]:
        """Move the entries below an offset to the history."""
        return self._build_close(unit, "kafka_offset < %s", [offset], why)

    def _build_close(self, unit: ApplyUnit, which: str, values: Params, why: str) -> list[Fragment]:
        columns = ", ".join(("pipeline", "topic", *_QUARANTINE_COLUMNS, "held_at"))
        held, closed = (
            self.tables.qualify_name("rowlock_quarantine"),
            self.tables.qualify_name("rowlock_quarantine_closed"),
        )
        where = f"FROM {held} WHERE {_OF_UNIT} AND {which}"
        place: Params = [unit.pipeline, unit.topic, *values]
        copy = f"INSERT INTO {closed} ({columns}, closed) SELECT {columns}, %s {where}"
        return [(copy, [why, *place]), (f"DELETE {where}", place)]


def _split_entries(held: Sequence[QuarantineEntry]) -> list[list[QuarantineEntry]]:
    """Return the entries in lists for one statement each; a larger entry is alone."""
    lists: list[list[QuarantineEntry]] = []
    room = 0
    for entry in held:
        size = len(entry.event) + len(entry.key) + len(entry.folded) + len(entry.error)
        if not lists or size > room or len(lists[-1]) == ENTRIES_A_STATEMENT:
            lists.append([])
            room = CHARACTERS_A_STATEMENT
        lists[-1].append(entry)
        room -= size
    return lists


def _select_entries(ids: Sequence[tuple[int, int]]) -> Iterator[tuple[str, Params]]:
    """Yield conditions with their parameters that together select entries by (offset, part)."""
    for at in range(0, len(ids), ENTRIES_A_STATEMENT):
        some = ids[at : at + ENTRIES_A_STATEMENT]
        which = " OR ".join(["(kafka_offset = %s AND part = %s)"] * len(some))
        yield f"({which})", [value for pair in some for value in pair]


def parse_quarantine_row(row: Sequence[object]) -> QuarantineEntry:
    """Return the QuarantineEntry of a row of `QuarantineStatements.build_select`."""
    offset, part, table, key, folded, event, error, commit_ts_ms, *age = row
    number: Callable[[object], int] = int  # type: ignore[assignment]
    values = (
        number(offset), number(part), str(table), str(key), str(folded), str(event), str(error),
        number(commit_ts_ms),
    )  # fmt: skip
    return AgedEntry(*values, age_ms=number(age[0])) if age else QuarantineEntry(*values)


def parse_resolved_row(row: Sequence[object]) -> ResolvedEntry:
    """Return the ResolvedEntry of a row of `QuarantineStatements.select_closed`."""
    *entry, closed, held_at, closed_at = row
    return ResolvedEntry(parse_quarantine_row(entry), str(closed), int(str(held_at)), int(str(closed_at)))


def _list_quarantine_values(held: QuarantineEntry) -> tuple[object, ...]:
    return (
        held.offset, held.part, held.table, held.key, held.folded, held.event, held.error, held.commit_ts_ms,
    )  # fmt: skip


_DISPLACED_COLUMNS = ("pipeline", "topic", "table_name", "row_data", "displaced_by")


@dataclass(frozen=True, slots=True)
class DisplacedStatements:
    """Statements on `rowlock_displaced`. `table`: the table's quoted name, for a dialect's own statements."""

    tables: BookkeepingTables

    @property
    def table(self) -> str:
        return self.tables.qualify_name("rowlock_displaced")

    @property
    def place(self) -> str:
        """The table with the columns that an INSERT fills."""
        return f"{self.table} ({', '.join(_DISPLACED_COLUMNS)})"

    def build_insert(self, rows: int) -> str:
        return self.tables.build_insert("rowlock_displaced", _DISPLACED_COLUMNS, rows)

    def build_select(self, unit: ApplyUnit) -> Fragment:
        """Select (id, table, displaced_by) of the rows that are not superseded."""
        text = (
            f"SELECT id, table_name, displaced_by FROM {self.tables.qualify_name('rowlock_displaced')} "
            f"WHERE {_OF_UNIT} AND displaced_by NOT LIKE %s ORDER BY id"
        )
        return text, [unit.pipeline, unit.topic, MARKED]

    def build_count(self, pipeline: str, *, superseded: bool = False) -> Fragment:
        """Count the rows of a pipeline by topic: the table has only its key's index, and is mostly empty."""
        like = "LIKE" if superseded else "NOT LIKE"
        text = (
            f"SELECT topic, COUNT(*) FROM {self.tables.qualify_name('rowlock_displaced')} WHERE pipeline = "
            f"%s AND displaced_by {like} %s GROUP BY topic"
        )
        return text, [pipeline, MARKED]

    def build_mark(self, by: str, ids: Sequence[int]) -> Fragment:
        """Update `displaced_by` of rows by their ids."""
        text = (
            f"UPDATE {self.tables.qualify_name('rowlock_displaced')} SET displaced_by = %s WHERE id IN "
            f"{render_placeholders(len(ids))}"
        )
        return text, [by, *ids]


_KEPT_COLUMNS = ("pipeline", "topic", "key_digest", "table_name", "row_key", "kafka_offset", "statement")


@dataclass(frozen=True, slots=True)
class KeptStatements:
    """Statements on `rowlock_kept`: the keys of rows that the source removed and that stay in the target.

    A table is named "schema.name", a key is as entries of the quarantine have it. An index cannot hold a key
    of any length, so the rows are found by a digest of table and key.
    """

    tables: BookkeepingTables

    def build_insert(self, unit: ApplyUnit, kept: KeptRows) -> list[Fragment]:
        """Insert keys."""
        table, about = kept.table, (kept.offset, kept.statement)
        return [
            (
                self.tables.build_insert("rowlock_kept", _KEPT_COLUMNS, len(some)),
                [
                    value
                    for key in some
                    for value in (
                        unit.pipeline, unit.topic, digest_kept_key(table, key), table, key, *about,
                    )
                ],
            )
            for some in _split_keys(kept.keys)
        ]  # fmt: skip

    def build_select(self, unit: ApplyUnit, table: str, keys: Sequence[str]) -> list[Fragment]:
        """Select the digests of those of `keys` that are in the table."""
        return [(f"SELECT key_digest {text}", params) for text, params in self._find(unit, table, keys)]

    def build_delete(self, unit: ApplyUnit, table: str, keys: Sequence[str]) -> list[Fragment]:
        """Delete keys, those that are in the table."""
        return [(f"DELETE {text}", params) for text, params in self._find(unit, table, keys)]

    def _find(self, unit: ApplyUnit, table: str, keys: Sequence[str]) -> list[Fragment]:
        kept = self.tables.qualify_name("rowlock_kept")
        return [
            (
                f"FROM {kept} WHERE {_OF_UNIT} AND key_digest IN {render_placeholders(len(some))}",
                [unit.pipeline, unit.topic, *(digest_kept_key(table, key) for key in some)],
            )
            for some in _split_keys(keys)
        ]

    def build_delete_all(self, unit: ApplyUnit) -> Fragment:
        text = f"DELETE FROM {self.tables.qualify_name('rowlock_kept')} WHERE {_OF_UNIT}"
        return text, [unit.pipeline, unit.topic]

    def build_select_any(self, unit: ApplyUnit) -> Fragment:
        """Select the digest of one key of the unit, if there is any."""
        text = f"SELECT key_digest FROM {self.tables.qualify_name('rowlock_kept')} WHERE {_OF_UNIT}"
        return self.tables.syntax.page(text, "key_digest", 1), [unit.pipeline, unit.topic]


def digest_kept_key(table: str, key: str) -> str:
    """Return what `rowlock_kept` finds a key of the table by."""
    return blake2b(f"{table}\n{key}".encode(), digest_size=24).hexdigest()


def _split_keys(keys: Sequence[str]) -> list[Sequence[str]]:
    return [keys[at : at + ENTRIES_A_STATEMENT] for at in range(0, len(keys), ENTRIES_A_STATEMENT)]


class Bookkeeping:
    """Statements on the bookkeeping tables in `schema`."""

    def __init__(self, schema: str, syntax: Syntax) -> None:
        self.syntax = syntax
        self.tables = BookkeepingTables(schema, syntax)
        self.lanes = LaneStatements(self.tables)
        self.units = UnitStatements(self.tables)
        self.quarantine = QuarantineStatements(self.tables)
        self.displaced = DisplacedStatements(self.tables)
        self.kept = KeptStatements(self.tables)
