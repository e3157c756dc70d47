"""The queries of a pipeline, and when one replaces another. Pure; part of consumer.units.decisions.

A query cannot change what it reads. So a new one is started beside it that reads what is wanted, the boards change, and
the old one is stopped: the units in it notice nothing. Starts are gathered, and kept apart, because each costs a second
of a core. What is read and no longer open here is left in the query for a while: it costs less than a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from consumer.units.messages import PipelineEffect, PostActiveUnits, StartQuery, StopQuery
from consumer.units.supervision import TROUBLE_BACKOFF
from consumer.units.unit import ApplyPhase, LocalUnit, QueryKind, UnitVersion
from schemas.backoff import Backoff

GATHER_S = 0.25
"""How long a start waits for units that are still being looked at."""
MIN_START_INTERVAL_S = 2.0
"""Least time between two starts of the same kind."""
LEFTOVER_S = 30.0
"""How long a query may read topics that are no longer open here."""


@dataclass(slots=True)
class LocalQuery:
    """A running query: what it reads, and its board."""

    number: int
    kind: QueryKind
    topics: dict[str, UnitVersion]
    posted: dict[str, int] = field(default_factory=dict)
    leftover_since: float | None = None


@dataclass(slots=True)
class QueryStates:
    """`current`: of each kind the one that units go to. `wanted_since`: since when a start is wanted.

    `boards`: of queries that are being started, what they begin with. `spark`: whether it is up; before, no query is started.
    """

    here: dict[int, LocalQuery] = field(default_factory=dict)
    current: dict[QueryKind, int] = field(default_factory=dict)
    starting: dict[QueryKind, int] = field(default_factory=dict)
    start_requested_at: dict[QueryKind, float] = field(default_factory=dict)
    not_before: dict[QueryKind, float] = field(default_factory=dict)
    backoff: dict[QueryKind, Backoff] = field(default_factory=dict)
    boards: dict[int, dict[str, int]] = field(default_factory=dict)
    numbers: int = 0
    spark: bool = False

    def is_read(self, kind: QueryKind, unit: LocalUnit) -> bool:
        query = self.here.get(self.current.get(kind, -1))
        return query is not None and query.topics.get(unit.topic) == unit.version

    def record_start(self, query: LocalQuery) -> int | None:
        """Note that `query` runs; returns the number of the one whose place it takes."""
        self.starting.pop(query.kind, None)
        query.posted = self.boards.pop(query.number, {})
        old = self.current.get(query.kind)
        self.here[query.number], self.current[query.kind] = query, query.number
        return old

    def record_failed_start(self, kind: QueryKind, now: float) -> None:
        self.boards.pop(self.starting.pop(kind, -1), None)
        self._delay_start(kind, now)

    def record_loss(self, number: int, now: float, out: list[PipelineEffect]) -> None:
        """Note that a query has died. One that is not known yet will be said to have died again."""
        query = self.here.pop(number, None)
        if query is None:
            return
        out.append(StopQuery(number))
        if self.current.get(query.kind) == number:
            del self.current[query.kind]
            self._delay_start(query.kind, now)

    def _delay_start(self, kind: QueryKind, now: float) -> None:
        self.backoff[kind] = self.backoff.get(kind, TROUBLE_BACKOFF).with_failure(now)
        self.not_before[kind] = self.backoff[kind].next_at


def plan_queries(
    queries: QueryStates, units: Mapping[str, LocalUnit], now: float, out: list[PipelineEffect]
) -> None:
    """Find homes, start and stop queries, and write the boards that changed (departures before arrivals)."""
    for unit in units.values():
        kind = QueryKind.CATCHING_UP if unit.behind else QueryKind.LIVE
        if unit.needs_direct_apply and queries.is_read(kind, unit):
            unit.query_number = queries.current[kind]
            unit.forget_query_progress()
    for kind in QueryKind:
        _start_query_if_needed(queries, kind, units, now, out)
    _post_changed_boards(queries, units, out)
    _retire_queries(queries, units, now, out)


def _list_members(kind: QueryKind, units: Mapping[str, LocalUnit]) -> list[LocalUnit]:
    """Return the units whose topics a query of this kind shall read."""
    if kind is QueryKind.LIVE:
        return [u for u in units.values() if u.topic_id and not u.stop_asked and not u.waits]
    return [u for u in units.values() if u.behind and u.phase is ApplyPhase.APPLYING and not u.stop_asked]


def _start_query_if_needed(
    queries: QueryStates,
    kind: QueryKind,
    units: Mapping[str, LocalUnit],
    now: float,
    out: list[PipelineEffect],
) -> None:
    members = _list_members(kind, units)
    missing = any(not queries.is_read(kind, unit) for unit in members)
    if kind is QueryKind.CATCHING_UP:
        missing = any(unit.query_number is None for unit in members)
    if not (missing or (members and _has_leftovers(queries, kind, members, now))):
        queries.start_requested_at.pop(kind, None)
        return
    since = queries.start_requested_at.setdefault(kind, now)
    if not queries.spark or kind in queries.starting or now < queries.not_before.get(kind, now):
        return
    if kind is QueryKind.CATCHING_UP and any(unit.busy for unit in members):
        return  # they are on its board from the first batch on: no hand is to be at any of them
    if now < since + GATHER_S and any(unit.busy for unit in units.values()):
        return
    queries.numbers += 1
    queries.starting[kind] = queries.numbers
    epochs = _move_to_new_query(queries, members) if kind is QueryKind.CATCHING_UP else {}
    queries.boards[queries.numbers] = epochs
    queries.not_before[kind] = now + MIN_START_INTERVAL_S
    starting = {unit.topic: _choose_first_offset(kind, unit) for unit in members}
    out.append(StartQuery(queries.numbers, kind, starting, [unit.ref for unit in members], epochs))


def _move_to_new_query(queries: QueryStates, members: list[LocalUnit]) -> dict[str, int]:
    """Take the units that catch up off the old query for the new one, and return its board.

    They are on it from its first batch on: nothing but the backlog comes through this query, so what it handed over before
    would not be followed by anything that makes a worker notice.
    """
    queries.current.pop(QueryKind.CATCHING_UP, None)
    for unit in members:
        unit.query_number = None
        unit.forget_query_progress()
    return {unit.topic: unit.epoch for unit in members}


def _choose_first_offset(kind: QueryKind, unit: LocalUnit) -> int:
    """Return the offset from which a new query reads: only the catching-up one must not miss anything, the others' gaps are filled."""
    if kind is QueryKind.CATCHING_UP or (unit.phase is ApplyPhase.APPLYING and not unit.behind):
        return unit.watched.offset + 1
    return -1


def _has_leftovers(queries: QueryStates, kind: QueryKind, members: list[LocalUnit], now: float) -> bool:
    """Tell whether the query has read for nothing for too long."""
    query = queries.here.get(queries.current.get(kind, -1))
    if query is None:
        return False
    if query.topics.keys() <= {unit.topic for unit in members}:
        query.leftover_since = None
        return False
    if query.leftover_since is None:
        query.leftover_since = now
    return kind is QueryKind.LIVE and now - query.leftover_since > LEFTOVER_S


def _post_changed_boards(
    queries: QueryStates, units: Mapping[str, LocalUnit], out: list[PipelineEffect]
) -> None:
    """Write the boards that changed: who leaves any of them does so before anybody comes onto another."""
    boards: dict[int, dict[str, int]] = {number: {} for number in queries.here}
    for unit in units.values():
        if unit.query_number in boards:
            boards[unit.query_number][unit.topic] = unit.epoch
    for number, board in boards.items():
        query = queries.here[number]
        _post_one(query, {topic: at for topic, at in query.posted.items() if board.get(topic) == at}, out)
    for number, board in boards.items():
        _post_one(queries.here[number], board, out)


def _post_one(query: LocalQuery, board: dict[str, int], out: list[PipelineEffect]) -> None:
    if board != query.posted:
        query.posted = board
        out.append(PostActiveUnits(query.number, board))


def _retire_queries(
    queries: QueryStates, units: Mapping[str, LocalUnit], now: float, out: list[PipelineEffect]
) -> None:
    """Stop the queries that have been replaced, a catching-up one that nobody is in, and a live one without units."""
    for number, query in list(queries.here.items()):
        if queries.current.get(query.kind) == number and not _is_useless(query, units, now):
            continue
        del queries.here[number]
        if queries.current.get(query.kind) == number:
            del queries.current[query.kind]
        out.append(StopQuery(number))


def _is_useless(query: LocalQuery, units: Mapping[str, LocalUnit], now: float) -> bool:
    if query.posted:
        query.leftover_since = None if query.kind is QueryKind.CATCHING_UP else query.leftover_since
        return False
    if query.kind is QueryKind.LIVE and units:
        return False
    if query.leftover_since is None:
        query.leftover_since = now
    return now - query.leftover_since > (LEFTOVER_S if query.kind is QueryKind.LIVE else MIN_START_INTERVAL_S)
