"""Statements on `rowlock_progress`, which has one row for each lane of a unit; the rows are also its
fence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import orjson

from consumer.ordering.model import ApplyUnit, LaneProgress
from consumer.targets.bookkeeping.tables import OF_UNIT, BookkeepingTables
from consumer.targets.sql import Fragment, Params, render_placeholders
from schemas.wire.position import Position

_COLUMNS = (
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
    """Statements on the lane rows of a unit."""

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
        text = f"SELECT {', '.join(_COLUMNS)} FROM {self.tables.qualify_name('rowlock_progress')} WHERE {OF_UNIT}{some} ORDER BY lane"
        return self.tables.syntax.locked(text) if lock else text, params

    def build_insert(self, unit: ApplyUnit, rows: Sequence[LaneProgress]) -> Fragment:
        params = [value for row in rows for value in (unit.pipeline, unit.topic, *_list_values(row))]
        return self.tables.build_insert(
            "rowlock_progress", ("pipeline", "topic", *_COLUMNS), len(rows)
        ), params

    def build_updates(self, unit: ApplyUnit, rows: Sequence[LaneProgress]) -> list[tuple[Fragment, int]]:
        """Return (statement, rows it must match) for each group of lanes that get the same values.

        Idle lanes all write the end of the batch, so there are mostly one or two groups.
        """
        ordered = sorted(rows, key=_list_values_without_lane)
        return [
            self._update_group(unit, list(group))
            for _, group in groupby(ordered, key=_list_values_without_lane)
        ]

    def _update_group(self, unit: ApplyUnit, rows: list[LaneProgress]) -> tuple[Fragment, int]:
        row = rows[0]
        text = (
            f"UPDATE {self.tables.qualify_name('rowlock_progress')} SET topic_id = %s, kafka_offset = %s, position = %s, gen = %s, "
            f"layout = %s, commit_ts_ms = %s, updated_at = {self.tables.syntax.now} "
            f"WHERE {OF_UNIT} AND lane IN {render_placeholders(len(rows))} AND epoch = %s AND attempt = %s"
        )
        params: Params = [
            row.topic_id, row.offset, _encode_position(row.position), row.gen, row.layout, row.commit_ts_ms,
            unit.pipeline, unit.topic, *(other.lane for other in rows), row.epoch, row.attempt,
        ]  # fmt: skip
        return (text, params), len(rows)

    def raise_epoch(self, unit: ApplyUnit, epoch: int) -> Fragment:
        text = f"UPDATE {self.tables.qualify_name('rowlock_progress')} SET epoch = %s, updated_at = {self.tables.syntax.now}"
        return f"{text} WHERE {OF_UNIT}", [epoch, unit.pipeline, unit.topic]

    def raise_attempt(self, unit: ApplyUnit, epoch: int) -> Fragment:
        text = f"UPDATE {self.tables.qualify_name('rowlock_progress')} SET attempt = attempt + 1"
        return f"{text} WHERE {OF_UNIT} AND epoch = %s", [unit.pipeline, unit.topic, epoch]

    def build_delete(self, unit: ApplyUnit) -> Fragment:
        text = f"DELETE FROM {self.tables.qualify_name('rowlock_progress')} WHERE {OF_UNIT}"
        return text, [unit.pipeline, unit.topic]


def parse_lane_row(row: Sequence[object]) -> LaneProgress:
    """Return the LaneProgress of a row of `LaneStatements.build_select`."""
    lane, epoch, attempt, topic_id, offset, position, gen, layout, commit_ts_ms = row
    number: Callable[[object], int] = int  # type: ignore[assignment]
    epoch_, file, pos, ordinal = orjson.loads(str(position))
    return LaneProgress(
        number(lane), number(epoch), number(attempt), str(topic_id), number(offset), (epoch_, file, pos, ordinal),
        number(gen), str(layout), number(commit_ts_ms),
    )  # fmt: skip


def _encode_position(position: Position) -> str:
    return orjson.dumps(position).decode()


def _list_values(row: LaneProgress) -> tuple[object, ...]:
    return (
        row.lane, row.epoch, row.attempt, row.topic_id, row.offset, _encode_position(row.position), row.gen,
        row.layout, row.commit_ts_ms,
    )  # fmt: skip


def _list_values_without_lane(row: LaneProgress) -> tuple[object, ...]:
    return _list_values(row)[1:]
