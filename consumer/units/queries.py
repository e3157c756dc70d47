"""Decides which queries a pipeline has, and when one replaces another. Does no I/O; part of
consumer.units.decisions.

A query cannot change the topics that it reads. So a new query is started beside the old one, the active
units move to it, and the old one is stopped: the units are not interrupted. Starts are collected and
kept apart in time, because each costs a second of a core. The topic of a unit that has left this process
stays in the query for a while: that costs less than a new query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from consumer.units.messages import PipelineEffect, PostActiveUnits, StartQuery, StopQuery
from consumer.units.supervision import TROUBLE_BACKOFF
from consumer.units.unit import ApplyPhase, LocalUnit, QueryKind, UnitVersion
from schemas.backoff import Backoff

GATHER_S = 0.25
"""Seconds that the start of a query waits while operations on units are running."""
MIN_START_INTERVAL_S = 2.0
"""Least time in seconds between two starts of queries of the same kind."""
LEFTOVER_S = 30.0
"""Seconds that a query may read topics of units that are no longer in this process."""


@dataclass(slots=True)
class LocalQuery:
    """A running query: the topics that it reads, and its active units."""

    number: int
    kind: QueryKind
    topics: dict[str, UnitVersion]
    posted: dict[str, int] = field(default_factory=dict)
    """The active units last posted: topic → fencing token."""
    leftover_since: float | None = None
    """Time since which it reads topics of units that have left, or has no units (monotonic seconds)."""

    def post_board(self, board: dict[str, int], out: list[PipelineEffect]) -> None:
        """Post the active units if they have changed."""
        if board != self.posted:
            self.posted = board
            out.append(PostActiveUnits(self.number, board))

    def measure_leftover_s(self, *, has_leftovers: bool, now: float) -> float:
        """Return for how many seconds it has been reading topics that no unit here needs."""
        if not has_leftovers:
            self.leftover_since = None
        elif self.leftover_since is None:
            self.leftover_since = now
        return 0.0 if self.leftover_since is None else now - self.leftover_since


@dataclass(slots=True)
class QueryStates:
    """The queries of one pipeline, running and starting."""

    here: dict[int, LocalQuery] = field(default_factory=dict)
    """Running queries by number."""
    current: dict[QueryKind, int] = field(default_factory=dict)
    """The query of each kind to which units are given."""
    starting: dict[QueryKind, int] = field(default_factory=dict)
    start_requested_at: dict[QueryKind, float] = field(default_factory=dict)
    """Since when a start is needed, by kind (monotonic seconds)."""
    not_before: dict[QueryKind, float] = field(default_factory=dict)
    """When the next start of a kind is allowed (monotonic seconds)."""
    backoff: dict[QueryKind, Backoff] = field(default_factory=dict)
    boards: dict[int, dict[str, int]] = field(default_factory=dict)
    """The first active units of queries that are being started, by number."""
    numbers: int = 0
    """The last number given to a query."""
    spark: bool = False
    """Whether Spark is up; no query is started before."""

    def is_read(self, kind: QueryKind, unit: LocalUnit) -> bool:
        query = self.here.get(self.current.get(kind, -1))
        return query is not None and query.topics.get(unit.topic) == unit.version

    def record_spark_up(self) -> None:
        """Allow the start of queries."""
        self.spark = True

    def begin_start(self, kind: QueryKind, board: dict[str, int], now: float) -> int:
        """Record that a query with these active units is being started; return its number."""
        self.numbers += 1
        self.starting[kind], self.boards[self.numbers] = self.numbers, board
        self.not_before[kind] = now + MIN_START_INTERVAL_S
        return self.numbers

    def record_start(self, number: int, kind: QueryKind, topics: Mapping[str, UnitVersion]) -> int | None:
        """Record that a query runs; return the number of the query that it replaces."""
        self.starting.pop(kind, None)
        old = self.current.get(kind)
        self.here[number] = LocalQuery(number, kind, dict(topics), posted=self.boards.pop(number, {}))
        self.current[kind] = number
        return old

    def record_failed_start(self, kind: QueryKind, now: float) -> None:
        self.boards.pop(self.starting.pop(kind, -1), None)
        self._delay_start(kind, now)

    def record_loss(self, number: int, now: float, out: list[PipelineEffect]) -> None:
        """Record that a query has died.

        A query that is not recorded as running yet is reported again at the next poll.
        """
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
    """Assign units to queries, start and stop queries, and post changed active units (removals before
    additions).

    A unit with a key sweep under way is applied directly, because only operations compare its ranges.
    """
    for unit in units.values():
        kind = QueryKind.CATCHING_UP if unit.has_backlog else QueryKind.LIVE
        stays_direct = unit.sweeping and kind is QueryKind.LIVE
        if unit.needs_direct_apply and not stays_direct and queries.is_read(kind, unit):
            unit.query_number = queries.current[kind]
            unit.forget_query_progress()
    for kind in QueryKind:
        _start_query_if_needed(queries, kind, units, now, out)
    _post_changed_boards(queries, units, out)
    _retire_queries(queries, units, now, out)


def _list_members(kind: QueryKind, units: Mapping[str, LocalUnit]) -> list[LocalUnit]:
    """Return the units that a query of this kind should read."""
    if kind is QueryKind.LIVE:
        return [u for u in units.values() if u.topic_id and not u.stop_requested and not u.waits]
    return [
        u for u in units.values() if u.has_backlog and u.phase is ApplyPhase.APPLYING and not u.stop_requested
    ]


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
        return  # they are active from the first batch on, so no operation may be running on any of them
    if now < since + GATHER_S and any(unit.busy for unit in units.values()):
        return
    epochs = _move_to_new_query(queries, members) if kind is QueryKind.CATCHING_UP else {}
    number = queries.begin_start(kind, epochs, now)
    starting = {unit.topic: _choose_first_offset(kind, unit) for unit in members}
    out.append(StartQuery(number, kind, starting, [unit.ref for unit in members], epochs))


def _move_to_new_query(queries: QueryStates, members: list[LocalUnit]) -> dict[str, int]:
    """Assign the units with a backlog to the new query, and return its active units.

    They are active from its first batch on. This query carries only the backlog: records handed over
    earlier would not be followed by any that make a worker notice the gap.
    """
    queries.current.pop(QueryKind.CATCHING_UP, None)
    for unit in members:
        unit.query_number = None
        unit.forget_query_progress()
    return {unit.topic: unit.epoch for unit in members}


def _choose_first_offset(kind: QueryKind, unit: LocalUnit) -> int:
    """Return the offset from which a new query reads `unit`.

    Only the catching-up query must not miss records; workers fill the gaps of the live one from Kafka.
    """
    if kind is QueryKind.CATCHING_UP or (unit.phase is ApplyPhase.APPLYING and not unit.has_backlog):
        return unit.watched.offset + 1
    return -1


def _has_leftovers(queries: QueryStates, kind: QueryKind, members: list[LocalUnit], now: float) -> bool:
    """Return whether a live query has read topics of units that have left for more than `LEFTOVER_S`."""
    query = queries.here.get(queries.current.get(kind, -1))
    if query is None:
        return False
    has_leftovers = not query.topics.keys() <= {unit.topic for unit in members}
    seconds = query.measure_leftover_s(has_leftovers=has_leftovers, now=now)
    return kind is QueryKind.LIVE and seconds > LEFTOVER_S


def _post_changed_boards(
    queries: QueryStates, units: Mapping[str, LocalUnit], out: list[PipelineEffect]
) -> None:
    """Post the active units that changed; every removal is posted before any addition."""
    boards: dict[int, dict[str, int]] = {number: {} for number in queries.here}
    for unit in units.values():
        if unit.query_number in boards:
            boards[unit.query_number][unit.topic] = unit.epoch
    for number, board in boards.items():
        query = queries.here[number]
        query.post_board({topic: at for topic, at in query.posted.items() if board.get(topic) == at}, out)
    for number, board in boards.items():
        queries.here[number].post_board(board, out)


def _retire_queries(
    queries: QueryStates, units: Mapping[str, LocalUnit], now: float, out: list[PipelineEffect]
) -> None:
    """Stop replaced queries, a catching-up query without active units, and a live query without units."""
    for number, query in list(queries.here.items()):
        if queries.current.get(query.kind) == number and not _is_useless(query, units, now):
            continue
        del queries.here[number]
        if queries.current.get(query.kind) == number:
            del queries.current[query.kind]
        out.append(StopQuery(number))


def _is_useless(query: LocalQuery, units: Mapping[str, LocalUnit], now: float) -> bool:
    is_live = query.kind is QueryKind.LIVE
    if is_live and (query.posted or units):
        return False
    seconds = query.measure_leftover_s(has_leftovers=not query.posted, now=now)
    return seconds > (LEFTOVER_S if is_live else MIN_START_INTERVAL_S)
