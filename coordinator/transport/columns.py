"""Columns of statuses and marks (schemas/coordination.proto): the part of the wire format that has to be fast.

One list a field instead of one message a unit: protobuf hands over a packed list in one call, where a message would cost
one call a field. Raises WireError for columns that do not fit together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from coordinator.core.messages import Mark, Reported, UnitStatus
from schemas import coordination_pb2 as pb
from schemas.position import Position


class WireError(Exception):
    """Bytes that no sender of this protocol can have meant."""


_STATES: tuple[Reported | None, ...] = (
    None,
    Reported.ABSENT,
    Reported.PREPARING,
    Reported.PREPARED,
    Reported.REPLICATING,
    Reported.STOPPING,
    Reported.STOPPED,
)
#: Any: protobuf's stubs have a class for an enum's numbers that nobody can make
_NUMBER: dict[Reported, Any] = {state: number for number, state in enumerate(_STATES) if state is not None}

_NO_MARK, _PLAIN, _PLACED = 0, 1, 2


def put_statuses(columns: pb.StatusColumns, statuses: Sequence[UnitStatus]) -> None:
    """Fill empty columns."""
    columns.unit.extend([s.unit for s in statuses])
    columns.epoch.extend([s.epoch for s in statuses])
    columns.state.extend([_NUMBER[s.state] for s in statuses])
    columns.rows_per_s.extend([s.rows_per_s for s in statuses])
    put_marks(columns.marks, [s.mark for s in statuses])
    for index, status in enumerate(statuses):
        if status.error is not None:
            columns.errors.add(index=index, text=status.error)


def get_statuses(columns: pb.StatusColumns) -> tuple[UnitStatus, ...]:
    """Return what `put_statuses` was given."""
    units = list(columns.unit)
    states = [_state(number) for number in columns.state]
    marks = get_marks(columns.marks)
    _same_length(units, columns.epoch, states, columns.rows_per_s, marks)
    errors: Iterable[str | None] = repeat(None)
    if columns.errors:
        texts = {error.index: error.text for error in columns.errors}
        errors = [texts.get(index) for index in range(len(units))]
    return tuple(map(UnitStatus, units, columns.epoch, states, marks, columns.rows_per_s, errors))


def put_marks(columns: pb.MarkColumns, marks: Sequence[Mark | None]) -> None:
    """Fill empty columns."""
    known = [m for m in marks if m is not None]
    columns.kind.extend([_NO_MARK if m is None else _PLAIN if m.position is None else _PLACED for m in marks])
    columns.checkpoint_ts.extend([m.checkpoint_ts for m in known])
    columns.resolved_ts.extend([m.resolved_ts for m in known])
    columns.position.extend([part for m in known if m.position is not None for part in m.position])


def get_marks(columns: pb.MarkColumns) -> list[Mark | None]:
    """Return what `put_marks` was given."""
    kinds = list(columns.kind)
    parts = iter(columns.position)
    if len(columns.position) % 4:
        raise WireError(f"positions of {len(columns.position)} parts, not 4 each")
    positions: list[Position] = list(zip(parts, parts, parts, parts, strict=True))
    known = len(kinds) - kinds.count(_NO_MARK)
    placed = kinds.count(_PLACED)
    if placed + kinds.count(_PLAIN) != known:
        raise WireError("a mark of an unknown kind")
    _same_length(range(known), columns.checkpoint_ts, columns.resolved_ts)
    _same_length(range(placed), positions)
    if placed == len(kinds):  # nearly always
        return list(map(Mark, columns.checkpoint_ts, columns.resolved_ts, positions))
    times = zip(columns.checkpoint_ts, columns.resolved_ts, strict=True)
    places = iter(positions)
    return [
        None if kind == _NO_MARK else Mark(*next(times), next(places) if kind == _PLACED else None)
        for kind in kinds
    ]


def put_mark(target: pb.Mark, mark: Mark) -> None:
    target.checkpoint_ts, target.resolved_ts = mark.checkpoint_ts, mark.resolved_ts
    target.position.extend(mark.position or ())


def get_mark(source: pb.Mark) -> Mark:
    match list(source.position):
        case []:
            return Mark(source.checkpoint_ts, source.resolved_ts)
        case [epoch, file, pos, row]:
            return Mark(source.checkpoint_ts, source.resolved_ts, (epoch, file, pos, row))
        case other:
            raise WireError(f"a position of {len(other)} parts instead of 4")


def _state(number: int) -> Reported:
    state = _STATES[number] if 0 <= number < len(_STATES) else None
    if state is None:
        raise WireError(f"a unit's state {number} that this version does not know")
    return state


def _same_length(first: Sequence[object], *others: Sequence[object]) -> None:
    if any(len(other) != len(first) for other in others):
        raise WireError(f"columns of {len(first)} and {[len(other) for other in others]} entries")
