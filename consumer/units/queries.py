"""The queries of a pipeline, and when one replaces another. Pure; part of consumer.units.decisions.

A query cannot change what it reads. So a new one is started beside it that reads what is wanted, the boards change, and
the old one is stopped: the units in it notice nothing. Starts are gathered, and kept apart, because each costs a second
of a core. What is read and no longer open here is left in the query for a while: it costs less than a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from consumer.units.messages import Effect, Post, StartQuery, StopQuery
from consumer.units.supervision import TROUBLE
from consumer.units.unit import ApplyPhase, QueryKind, UnitHere, Version
from schemas.backoff import Backoff

GATHER_S = 0.25
"""How long a start waits for units that are still being looked at."""
APART_S = 2.0
"""Least time between two starts of the same kind."""
LEFTOVER_S = 30.0
"""How long a query may read topics that are no longer open here."""


@dataclass(slots=True)
class QueryHere:
    """A running query: what it reads, and its board."""

    number: int
    kind: QueryKind
    topics: dict[str, Version]
    posted: dict[str, int] = field(default_factory=dict)
    leftover_since: float | None = None


@dataclass(slots=True)
class Queries:
    """`current`: of each kind the one that units go to. `wanted_since`: since when a start is wanted.

    `boards`: of queries that are being started, what they begin with. `spark`: whether it is up; before, no query is started.
    """

    here: dict[int, QueryHere] = field(default_factory=dict)
    current: dict[QueryKind, int] = field(default_factory=dict)
    starting: dict[QueryKind, int] = field(default_factory=dict)
    wanted_since: dict[QueryKind, float] = field(default_factory=dict)
    not_before: dict[QueryKind, float] = field(default_factory=dict)
    backoff: dict[QueryKind, Backoff] = field(default_factory=dict)
    boards: dict[int, dict[str, int]] = field(default_factory=dict)
    numbers: int = 0
    spark: bool = False

    def reads(self, kind: QueryKind, unit: UnitHere) -> bool:
        query = self.here.get(self.current.get(kind, -1))
        return query is not None and query.topics.get(unit.topic) == unit.version

    def up(self, query: QueryHere) -> int | None:
        """Note that `query` runs; returns the number of the one whose place it takes."""
        self.starting.pop(query.kind, None)
        query.posted = self.boards.pop(query.number, {})
        old = self.current.get(query.kind)
        self.here[query.number], self.current[query.kind] = query, query.number
        return old

    def failed(self, kind: QueryKind, now: float) -> None:
        self.boards.pop(self.starting.pop(kind, -1), None)
        self._wait(kind, now)

    def lost(self, number: int, now: float, out: list[Effect]) -> None:
        """Note that a query has died. One that is not known yet will be said to have died again."""
        query = self.here.pop(number, None)
        if query is None:
            return
        out.append(StopQuery(number))
        if self.current.get(query.kind) == number:
            del self.current[query.kind]
            self._wait(query.kind, now)

    def _wait(self, kind: QueryKind, now: float) -> None:
        self.backoff[kind] = self.backoff.get(kind, TROUBLE).failed(now)
        self.not_before[kind] = self.backoff[kind].next_at


def plan(queries: Queries, units: Mapping[str, UnitHere], now: float, out: list[Effect]) -> None:
    """Find homes, start and stop queries, and write the boards that changed (departures before arrivals)."""
    for unit in units.values():
        kind = QueryKind.CATCHING_UP if unit.behind else QueryKind.LIVE
        if unit.homeless and queries.reads(kind, unit):
            unit.home = queries.current[kind]
            unit.moved()
    for kind in QueryKind:
        _start(queries, kind, units, now, out)
    _post(queries, units, out)
    _retire(queries, units, now, out)


def _members(kind: QueryKind, units: Mapping[str, UnitHere]) -> list[UnitHere]:
    """Return the units whose topics a query of this kind shall read."""
    if kind is QueryKind.LIVE:
        return [u for u in units.values() if u.topic_id and not u.stop_asked and not u.waits]
    return [u for u in units.values() if u.behind and u.phase is ApplyPhase.APPLYING and not u.stop_asked]


def _start(
    queries: Queries, kind: QueryKind, units: Mapping[str, UnitHere], now: float, out: list[Effect]
) -> None:
    members = _members(kind, units)
    missing = any(not queries.reads(kind, unit) for unit in members)
    if kind is QueryKind.CATCHING_UP:
        missing = any(unit.home is None for unit in members)
    if not (missing or (members and _leftovers(queries, kind, members, now))):
        queries.wanted_since.pop(kind, None)
        return
    since = queries.wanted_since.setdefault(kind, now)
    if not queries.spark or kind in queries.starting or now < queries.not_before.get(kind, now):
        return
    if kind is QueryKind.CATCHING_UP and any(unit.busy for unit in members):
        return  # they are on its board from the first batch on: no hand is to be at any of them
    if now < since + GATHER_S and any(unit.busy for unit in units.values()):
        return
    queries.numbers += 1
    queries.starting[kind] = queries.numbers
    epochs = _leave(queries, members) if kind is QueryKind.CATCHING_UP else {}
    queries.boards[queries.numbers] = epochs
    queries.not_before[kind] = now + APART_S
    starting = {unit.topic: _first_offset(kind, unit) for unit in members}
    out.append(StartQuery(queries.numbers, kind, starting, [unit.about for unit in members], epochs))


def _leave(queries: Queries, members: list[UnitHere]) -> dict[str, int]:
    """Take the units that catch up off the old query for the new one, and return its board.

    They are on it from its first batch on: nothing but the backlog comes through this query, so what it handed over before
    would not be followed by anything that makes a worker notice.
    """
    queries.current.pop(QueryKind.CATCHING_UP, None)
    for unit in members:
        unit.home = None
        unit.moved()
    return {unit.topic: unit.epoch for unit in members}


def _first_offset(kind: QueryKind, unit: UnitHere) -> int:
    """Return the offset from which a new query reads: only the catching-up one must not miss anything, the others' gaps are filled."""
    if kind is QueryKind.CATCHING_UP or (unit.phase is ApplyPhase.APPLYING and not unit.behind):
        return unit.watched.offset + 1
    return -1


def _leftovers(queries: Queries, kind: QueryKind, members: list[UnitHere], now: float) -> bool:
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


def _post(queries: Queries, units: Mapping[str, UnitHere], out: list[Effect]) -> None:
    """Write the boards that changed: who leaves any of them does so before anybody comes onto another."""
    boards: dict[int, dict[str, int]] = {number: {} for number in queries.here}
    for unit in units.values():
        if unit.home in boards:
            boards[unit.home][unit.topic] = unit.epoch
    for number, board in boards.items():
        query = queries.here[number]
        _post_one(query, {topic: at for topic, at in query.posted.items() if board.get(topic) == at}, out)
    for number, board in boards.items():
        _post_one(queries.here[number], board, out)


def _post_one(query: QueryHere, board: dict[str, int], out: list[Effect]) -> None:
    if board != query.posted:
        query.posted = board
        out.append(Post(query.number, board))


def _retire(queries: Queries, units: Mapping[str, UnitHere], now: float, out: list[Effect]) -> None:
    """Stop the queries that have been replaced, a catching-up one that nobody is in, and a live one without units."""
    for number, query in list(queries.here.items()):
        if queries.current.get(query.kind) == number and not _useless(query, units, now):
            continue
        del queries.here[number]
        if queries.current.get(query.kind) == number:
            del queries.current[query.kind]
        out.append(StopQuery(number))


def _useless(query: QueryHere, units: Mapping[str, UnitHere], now: float) -> bool:
    if query.posted:
        query.leftover_since = None if query.kind is QueryKind.CATCHING_UP else query.leftover_since
        return False
    if query.kind is QueryKind.LIVE and units:
        return False
    if query.leftover_since is None:
        query.leftover_since = now
    return now - query.leftover_since > (LEFTOVER_S if query.kind is QueryKind.LIVE else APART_S)
