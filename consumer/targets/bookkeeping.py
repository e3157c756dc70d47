"""The tables that rowlock keeps in each target, and their statements (docs/reference/bookkeeping.md).

The truth about how far a unit is applied lives here, in the same transactions as the rows. The statements are the
same for all dialects; where databases differ they are asked of the dialect's `Syntax`. Rendering is pure; sessions run the
statements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import orjson

from consumer.ordering.model import ApplyUnit, Held, LaneProgress, UnitState
from consumer.targets.shared.displaced_rows import MARKED
from consumer.targets.sql import Fragment, Params, Syntax, placeholders, qualified
from schemas.wire.position import Position

NO_STATE = UnitState(None, None, None)

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
        {"id": "id", "pipeline": "name", "topic": "topic", "kafka_offset": "big", "part": "int", "table_name": "text",
         "row_key": "text", "folded_key": "text", "event": "text", "error": "text", "commit_ts_ms": "big",
         "held_at": "now", "closed": "text", "closed_at": "now"},
    ),
    "rowlock_displaced": (
        1,
        {"id": "id", "pipeline": "name", "topic": "topic", "table_name": "text", "row_data": "text",
         "displaced_by": "text", "displaced_at": "now"},
    ),
}  # fmt: skip

#: What sessions do with them beside creating them.
_RIGHTS = {
    "rowlock_progress": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "rowlock_unit": ("SELECT", "INSERT", "UPDATE"),
    "rowlock_quarantine": ("SELECT", "INSERT", "DELETE"),
    "rowlock_quarantine_closed": ("INSERT",),
    "rowlock_displaced": ("SELECT", "INSERT", "UPDATE"),
}

_PROGRESS = (
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
_HELD = ("kafka_offset", "part", "table_name", "row_key", "folded_key", "event", "error", "commit_ts_ms")
_DISPLACED = ("pipeline", "topic", "table_name", "row_data", "displaced_by")
_UNIT = "pipeline = %s AND topic = %s"


@dataclass(frozen=True)
class Books:
    """Statements on the bookkeeping tables in `schema`."""

    schema: str
    syntax: Syntax

    def table(self, name: str) -> str:
        return qualified(self.syntax.quote, self.schema, name)

    def names(self) -> tuple[str, ...]:
        return tuple(_TABLES)

    def rights(self) -> dict[str, tuple[str, ...]]:
        """Return what the user needs on each table once it is there."""
        return dict(_RIGHTS)

    def create(self, name: str) -> str:
        keys, columns = _TABLES[name]
        body = [f"{column} {self.syntax.types[kind]}" for column, kind in columns.items()]
        body.append(f"PRIMARY KEY ({', '.join(list(columns)[:keys])})")
        return self.syntax.create(self.table(name), ", ".join(body))

    def _insert(self, name: str, columns: Sequence[str], rows: int) -> str:
        return self.syntax.insert(self.table(name), columns, rows)

    def select_lanes(
        self, unit: ApplyUnit, lanes: Sequence[int] | None = None, *, lock: bool = False
    ) -> Fragment:
        """Select lane rows in lane order; `lock` makes it the guard: a locking read sees the latest commit."""
        params: Params = [unit.pipeline, unit.topic]
        some = ""
        if lanes is not None:
            some = f" AND lane IN {placeholders(len(lanes))}"
            params.extend(lanes)
        text = f"SELECT {', '.join(_PROGRESS)} FROM {self.table('rowlock_progress')} WHERE {_UNIT}{some} ORDER BY lane"
        return self.syntax.locked(text) if lock else text, params

    def insert_lanes(self, unit: ApplyUnit, rows: Sequence[LaneProgress]) -> Fragment:
        params = [value for row in rows for value in (unit.pipeline, unit.topic, *_lane_values(row))]
        return self._insert("rowlock_progress", ("pipeline", "topic", *_PROGRESS), len(rows)), params

    def update_lanes(self, unit: ApplyUnit, rows: Sequence[LaneProgress]) -> list[tuple[Fragment, int]]:
        """Return (statement, rows it must match) for each group of lanes that get the same values.

        Idle lanes all write the end of the batch, so there are mostly one or two groups.
        """
        ordered = sorted(rows, key=_lane_content)
        return [self._update_group(unit, list(group)) for _, group in groupby(ordered, key=_lane_content)]

    def _update_group(self, unit: ApplyUnit, rows: list[LaneProgress]) -> tuple[Fragment, int]:
        row = rows[0]
        text = (
            f"UPDATE {self.table('rowlock_progress')} SET topic_id = %s, kafka_offset = %s, position = %s, gen = %s, "
            f"layout = %s, commit_ts_ms = %s, updated_at = {self.syntax.now} "
            f"WHERE {_UNIT} AND lane IN {placeholders(len(rows))} AND epoch = %s AND attempt = %s"
        )
        params: Params = [
            row.topic_id, row.offset, _position_text(row.position), row.gen, row.layout, row.commit_ts_ms,
            unit.pipeline, unit.topic, *(other.lane for other in rows), row.epoch, row.attempt,
        ]  # fmt: skip
        return (text, params), len(rows)

    def raise_epoch(self, unit: ApplyUnit, epoch: int) -> Fragment:
        text = f"UPDATE {self.table('rowlock_progress')} SET epoch = %s, updated_at = {self.syntax.now}"
        return f"{text} WHERE {_UNIT}", [epoch, unit.pipeline, unit.topic]

    def raise_attempt(self, unit: ApplyUnit, epoch: int) -> Fragment:
        text = f"UPDATE {self.table('rowlock_progress')} SET attempt = attempt + 1"
        return f"{text} WHERE {_UNIT} AND epoch = %s", [unit.pipeline, unit.topic, epoch]

    def delete_lanes(self, unit: ApplyUnit) -> Fragment:
        return f"DELETE FROM {self.table('rowlock_progress')} WHERE {_UNIT}", [unit.pipeline, unit.topic]

    def select_unit(self, unit: ApplyUnit) -> Fragment:
        since = self.syntax.millis("updated_at")
        text = f"SELECT definition, ddl, stopped, {since} FROM {self.table('rowlock_unit')} WHERE {_UNIT}"
        return text, [unit.pipeline, unit.topic]

    def insert_unit(self, unit: ApplyUnit) -> Fragment:
        return self._insert("rowlock_unit", ("pipeline", "topic"), 1), [unit.pipeline, unit.topic]

    def update_unit(self, unit: ApplyUnit, state: UnitState) -> Fragment:
        text = (
            f"UPDATE {self.table('rowlock_unit')} SET definition = %s, ddl = %s, stopped = %s, "
            f"updated_at = {self.syntax.now} WHERE {_UNIT}"
        )
        return text, [state.definition, state.ddl, state.stopped, unit.pipeline, unit.topic]

    def update_stopped(self, unit: ApplyUnit, message: str | None, *, still: bool = False) -> Fragment:
        """Set why a unit is stopped, or that it is not; `still`: the same as before it was tried again, and since then."""
        text = f"UPDATE {self.table('rowlock_unit')} SET stopped = %s"
        if message is not None and not still:
            text += f", updated_at = {self.syntax.now}"
        return f"{text} WHERE {_UNIT}", [message, unit.pipeline, unit.topic]

    def select_topics(self, pipeline: str) -> Fragment:
        text = f"SELECT topic FROM {self.table('rowlock_unit')} WHERE pipeline = %s ORDER BY topic"
        return text, [pipeline]

    def select_held(self, unit: ApplyUnit) -> Fragment:
        text = f"SELECT {', '.join(_HELD)} FROM {self.table('rowlock_quarantine')} WHERE {_UNIT}"
        return f"{text} ORDER BY kafka_offset, part", [unit.pipeline, unit.topic]

    def insert_held(self, unit: ApplyUnit, held: Sequence[Held]) -> Fragment:
        params = [value for entry in held for value in (unit.pipeline, unit.topic, *_held_values(entry))]
        return self._insert("rowlock_quarantine", ("pipeline", "topic", *_HELD), len(held)), params

    def close_held(self, unit: ApplyUnit, ids: Sequence[tuple[int, int]], why: str) -> list[Fragment]:
        """Move entries by (offset, part) to the history."""
        some = " OR ".join(["(kafka_offset = %s AND part = %s)"] * len(ids))
        return self._close(unit, f"({some})", [value for pair in ids for value in pair], why)

    def close_held_before(self, unit: ApplyUnit, offset: int, why: str) -> list[Fragment]:
        """Move the entries below an offset to the history."""
        return self._close(unit, "kafka_offset < %s", [offset], why)

    def _close(self, unit: ApplyUnit, which: str, values: Params, why: str) -> list[Fragment]:
        columns = ", ".join(("pipeline", "topic", *_HELD, "held_at"))
        held, closed = self.table("rowlock_quarantine"), self.table("rowlock_quarantine_closed")
        where = f"FROM {held} WHERE {_UNIT} AND {which}"
        place: Params = [unit.pipeline, unit.topic, *values]
        copy = f"INSERT INTO {closed} ({columns}, closed) SELECT {columns}, %s {where}"
        return [(copy, [why, *place]), (f"DELETE {where}", place)]

    def insert_displaced(self, rows: int) -> str:
        return self._insert("rowlock_displaced", _DISPLACED, rows)

    def displaced_columns(self) -> str:
        return f"{self.table('rowlock_displaced')} ({', '.join(_DISPLACED)})"


def _position_text(position: Position) -> str:
    return orjson.dumps(position).decode()


def _lane_values(row: LaneProgress) -> tuple[object, ...]:
    return (
        row.lane, row.epoch, row.attempt, row.topic_id, row.offset, _position_text(row.position), row.gen,
        row.layout, row.commit_ts_ms,
    )  # fmt: skip


def _lane_content(row: LaneProgress) -> tuple[object, ...]:
    return _lane_values(row)[1:]


def _held_values(held: Held) -> tuple[object, ...]:
    return (
        held.offset, held.part, held.table, held.key, held.folded, held.event, held.error, held.commit_ts_ms,
    )  # fmt: skip


def lane_from(row: Sequence[object]) -> LaneProgress:
    """Build LaneProgress from a row of `select_lanes`."""
    lane, epoch, attempt, topic_id, offset, position, gen, layout, commit_ts_ms = row
    number: Callable[[object], int] = int  # type: ignore[assignment]
    epoch_, file, pos, ordinal = orjson.loads(str(position))
    return LaneProgress(
        number(lane), number(epoch), number(attempt), str(topic_id), number(offset), (epoch_, file, pos, ordinal),
        number(gen), str(layout), number(commit_ts_ms),
    )  # fmt: skip


def held_from(row: Sequence[object]) -> Held:
    """Build Held from a row of `select_held`."""
    offset, part, table, key, folded, event, error, commit_ts_ms = row
    number: Callable[[object], int] = int  # type: ignore[assignment]
    return Held(
        number(offset), number(part), str(table), str(key), str(folded), str(event), str(error),
        number(commit_ts_ms),
    )  # fmt: skip


def select_units(books: Books, pipeline: str, *, lock: bool = False) -> Fragment:
    """Select all units of a pipeline, each as `Books.select_unit` does behind its topic, in the order of topics."""
    since = books.syntax.millis("updated_at")
    text = f"SELECT topic, definition, ddl, stopped, {since} FROM {books.table('rowlock_unit')} WHERE pipeline = %s ORDER BY topic"
    return books.syntax.locked(text) if lock else text, [pipeline]


def count_displaced(books: Books, pipeline: str, *, superseded: bool = False) -> Fragment:
    """Count by topic, all of a pipeline at once: the table has no index but its key's, and is mostly empty."""
    like = "LIKE" if superseded else "NOT LIKE"
    table = books.table("rowlock_displaced")
    text = (
        f"SELECT topic, COUNT(*) FROM {table} WHERE pipeline = %s AND displaced_by {like} %s GROUP BY topic"
    )
    return text, [pipeline, MARKED]


def select_displaced(books: Books, unit: ApplyUnit) -> Fragment:
    """Select (id, table, displaced_by) of what is not superseded."""
    text = f"SELECT id, table_name, displaced_by FROM {books.table('rowlock_displaced')} WHERE {_UNIT} AND displaced_by NOT LIKE %s ORDER BY id"
    return text, [unit.pipeline, unit.topic, MARKED]


def mark_displaced(books: Books, by: str, ids: Sequence[int]) -> Fragment:
    """Update `displaced_by` of rows by their numbers."""
    text = f"UPDATE {books.table('rowlock_displaced')} SET displaced_by = %s WHERE id IN {placeholders(len(ids))}"
    return text, [by, *ids]


def units_from(rows: Sequence[Sequence[object]]) -> dict[str, UnitState]:
    """Build topic → UnitState from the rows of `select_units`."""
    return {str(topic): unit_from([row]) or NO_STATE for topic, *row in rows}


def unit_from(rows: Sequence[Sequence[object]]) -> UnitState | None:
    """Build UnitState from the rows of `select_unit`; None when there is none."""
    if not rows:
        return None
    definition, ddl, stopped = (None if value is None else str(value) for value in rows[0][:3])
    since = rows[0][3]
    return UnitState(definition, ddl, stopped, int(str(since)) if stopped and since is not None else None)
