"""Random histories of a table with a primary key and two nullable unique keys, and the judge: serial replay.

`histories()` is a Hypothesis strategy; `run_pure` drives the real core over a FakeTarget under a random
schedule of the lanes, step by step and without threads; `run_threads` drives LaneGroup in threads against any
target, real ones too:

    final = run_threads(history, lambda: PostgresSession(...), target_table("public"), lanes=4, max_gather=3,
    seed=1) assert final == serial(history)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace as altered

from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.threads import ThreadDriver
from consumer.attempt.effects import Machine
from consumer.attempt.lane_group import LaneGroup
from consumer.errors import RefusedError
from consumer.ordering.dedup import Deduplicator
from consumer.ordering.dispatch import Dispatcher, TablePlan
from consumer.ordering.lanes.batches import LaneBatch
from consumer.ordering.lanes.lane import ApplyBatch, Lane, LaneLimits, WaitForTickets, WaitForWork
from consumer.ordering.layout import Layout
from consumer.ordering.model import ApplyUnit, LaneProgress, RowChange, TargetTable
from consumer.ordering.progress import LaneMark, advance_row
from consumer.ordering.progress import plan_resume as plan_start
from consumer.ordering.tickets import TicketTable
from schemas.table.model import Column, ColumnType, IndexPart, Key, Kind, Row, Table, UniqueIndex
from schemas.wire.position import Position

UNIT = ApplyUnit("history", "topic")


def target_table(db: str = "public", name: str = "history", *, unique: bool = True) -> TargetTable:
    """`history(id bigint primary key, a varchar(20) unique, b int unique, v int)`; without `unique` only the
    key is unique."""
    columns = (
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=64), nullable=False),
        Column(
            name="a",
            type=ColumnType(kind=Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_bin"),
        ),
        Column(name="b", type=ColumnType(kind=Kind.INT, bits=32)),
        Column(name="v", type=ColumnType(kind=Kind.INT, bits=32)),
    )
    table = Table(
        db=db,
        name=name,
        columns=columns,
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
        unique=(
            UniqueIndex(name="a", parts=(IndexPart(column="a"),)),
            UniqueIndex(name="b", parts=(IndexPart(column="b"),)),
        )
        if unique
        else (),
    )
    return TargetTable(table, (0,), ((1,), (2,)) if unique else ())


@dataclass(frozen=True)
class Event:
    """A record of the topic; its offset is its place in the list. `refused`: why its new row cannot be sent
    to any target."""

    position: Position
    prev: Position | None
    gen: int
    before: Row | None
    after: Row | None
    refused: str | None = None


@dataclass(frozen=True)
class TopicHistory:
    """`topic` may hold stretches twice (re-sent with the same positions); `changes` is what happened, once
    each."""

    changes: list[tuple[Row | None, Row | None]]
    topic: list[Event]


Op = tuple[str, int, int | None, int | None, int]
"""(what, id, a, b, other id): see `changes_of`."""


def changes_of(ops: list[Op]) -> list[tuple[Row | None, Row | None]]:
    """Play `ops` on a source and return the row changes it logs; what the source would refuse does nothing.

    put: insert or update the row `id` with a and b. move: update the key from `id` to the other id. drop:
    delete. hand: give a and b of row `id` to the other row, in two updates of one transaction.
    """
    rows: dict[Any, Row] = {}
    out: list[tuple[Row | None, Row | None]] = []

    def write(old: int, after: Row | None) -> None:
        before = rows.get(old)
        if after is None and before is None:
            return
        if after is not None:
            for key, row in rows.items():
                if key != old and any(row[i] == after[i] and row[i] is not None for i in (0, 1, 2)):
                    return
        rows.pop(old, None)
        if after is not None:
            rows[after[0]] = after
        out.append((before, after))

    for number, (what, key, a, b, other) in enumerate(ops):
        name = None if a is None else f"n{a}"
        if what == "put":
            write(key, (key, name, b, number))
        elif what == "drop":
            write(key, None)
        elif what == "move" and key in rows and key != other:
            write(key, (other, *rows[key][1:3], number) if a is None else (other, name, b, number))
        elif what == "hand" and key in rows and other in rows and key != other:
            given = rows[key]
            write(key, (key, None, None, number))
            write(other, (other, given[1], given[2], number))
    return out


def topic_of(changes: list[tuple[Row | None, Row | None]], resend: list[tuple[int, int]]) -> list[Event]:
    """Return the topic: every change once, and after change `at` (of each resend) the last `n` changes
    again."""
    events = [
        Event((0, 1, 10 * i, 0), (0, 1, 10 * (i - 1), 0) if i else None, 1, before, after)
        for i, (before, after) in enumerate(changes)
    ]
    again = dict(resend)
    topic: list[Event] = []
    for i, event in enumerate(events):
        topic.append(event)
        if i in again:
            topic.extend(events[max(0, i + 1 - again[i]) : i + 1])
    return topic


@st.composite
def histories(draw: st.DrawFn, max_ops: int = 40, keys: int = 4, values: int = 3) -> TopicHistory:
    value = st.one_of(st.none(), st.integers(0, values - 1))
    key = st.integers(1, keys)
    what = st.sampled_from(("put", "put", "put", "drop", "move", "hand"))
    changes = changes_of(draw(st.lists(st.tuples(what, key, value, value, key), max_size=max_ops)))
    resend = draw(st.lists(st.tuples(st.integers(0, max_ops), st.integers(1, 8)), max_size=3))
    return TopicHistory(changes, topic_of(changes, resend))


def serial(history: TopicHistory) -> dict[Key, Row]:
    """Replay the changes one by one: the truth."""
    rows: dict[Key, Row] = {}
    for before, after in history.changes:
        if before is not None:
            del rows[(before[0],)]
        if after is not None:
            rows[(after[0],)] = after
    return rows


class Attempt:
    """One task attempt over the topic: what the Spark shell does between `Session.begin` and the lanes."""

    def __init__(self, session: Any, epoch: int, table: TargetTable, expected: Layout) -> None:
        rows, _state, self.held = session.begin_attempt(UNIT, epoch)
        plan = plan_start(rows, expected)
        self.rows: list[LaneProgress] = rows
        self.start, self.layout, self.finish, self.switch = (
            plan.start,
            plan.layout,
            plan.finish,
            plan.switch_now,
        )
        self.locks = TicketTable(plan.layout.lanes)
        self.marks = Deduplicator(rows)
        self.dispatcher = Dispatcher(plan.layout, self.locks, rows)
        self.plan: TablePlan = self.dispatcher.plan_table(table)

    def routed(self, topic: list[Event], begin: int, end: int) -> list[RowChange]:
        """Judge the records [begin, end) of the topic and return the accepted ones."""
        out: list[RowChange] = []
        for offset in range(begin, end):
            event = topic[offset]
            if not self.marks.judge_record(offset, event.position, event.prev, event.gen):
                change = RowChange((offset, 0), event.before, event.after)
                out.append(altered(change, position=event.position, gen=event.gen, refused=event.refused))
        return out

    @property
    def mark(self) -> LaneMark:
        return (self.marks.offset, self.marks.position, self.marks.gen, 0)


def write(session: Any, rows: list[LaneProgress], lane: int, batch: LaneBatch) -> None:
    """Apply a lane's batch in one guarded transaction and remember its new row."""
    row = advance_row(rows[lane], batch.mark)
    with session.begin_transaction(UNIT, [rows[lane]]) as transaction:
        for net in batch.nets:
            transaction.apply_net_change(net, displacing=batch.displacing)
        transaction.write_quarantine(batch.quarantine.added)
        transaction.close_held(batch.quarantine.closed, "settled")
        transaction.write_progress([row])
    rows[lane] = row


def write_idle(session: Any, rows: list[LaneProgress], lanes: list[int], mark: LaneMark) -> None:
    """Write the batch's end for lanes that had nothing, in one transaction."""
    new = [advance_row(rows[lane], mark) for lane in lanes if rows[lane].offset < mark[0]]
    if new:
        with session.begin_transaction(UNIT, [rows[row.lane] for row in new]) as transaction:
            transaction.write_progress(new)
        for row in new:
            rows[row.lane] = row


def run_pure(
    history: TopicHistory,
    session: Any,
    table: TargetTable,
    *,
    lanes: int,
    max_gather: int,
    rng: random.Random,
    replace: bool = True,
) -> None:
    """Apply the history in attempts of random length; within each the lanes take random turns; some attempts
    crash.

    `replace`: see Lane.
    """
    layout = Layout(lanes=lanes)
    epoch, _rows, _state = session.take_over(UNIT, "id", layout.encode(), lanes)
    done = False
    while not done:
        attempt = Attempt(session, epoch, table, layout)
        end = min(len(history.topic), attempt.start + rng.randint(1, 12))
        crash = rng.random() < 0.3
        done = end == len(history.topic) and not crash
        machines = [
            Lane(n, attempt.locks, LaneLimits(max_gather=max_gather), attempt.held, replace=replace)
            for n in range(attempt.layout.lanes)
        ]
        _run_batch(attempt, session, history, end, machines, rng, crash=crash)


def _run_batch(
    attempt: Attempt,
    session: Any,
    history: TopicHistory,
    end: int,
    machines: list[Lane],
    rng: random.Random,
    *,
    crash: bool,
) -> None:
    turns = _turns(attempt, history, end, machines, rng)
    idle: set[int] = set()
    finished: set[int] = set()
    while len(finished) < len(machines):
        if crash and rng.random() < 0.05:
            return
        if rng.random() < 0.4:
            next(turns, None)
        machine = rng.choice(machines)
        if machine.number in finished:
            continue
        effect = machine.choose_effect()
        if isinstance(effect, ApplyBatch):
            try:
                write(session, attempt.rows, machine.number, machine.build_batch())
            except RefusedError as error:
                machine.handle_failure(error)
            else:
                machine.record_applied()
        elif isinstance(effect, WaitForTickets):
            for wait in effect.waits:
                machines[wait[1]].request_commit(wait[0])
        elif isinstance(effect, WaitForWork) and effect.drained:
            finished.add(machine.number)
            if not effect.wrote:
                idle.add(machine.number)
    write_idle(session, attempt.rows, sorted(idle), attempt.mark)


def _turns(
    attempt: Attempt, history: TopicHistory, end: int, machines: list[Lane], rng: random.Random
) -> Iterator[None]:
    """Hand the records over in random chunks, then drain; a step of the schedule each."""
    at = attempt.start
    while at < end:
        upto = min(end, at + rng.randint(1, 5))
        attempt.dispatcher.dispatch(attempt.plan, attempt.routed(history.topic, at, upto))
        for machine, items in zip(machines, attempt.dispatcher.take_queued(), strict=True):
            machine.queue_items(items)
        at = upto
        yield
    for machine in machines:
        machine.drain_to(attempt.mark)
    yield


def run_threads(
    history: TopicHistory,
    open_session: Callable[[], Any],
    table: TargetTable,
    *,
    lanes: int,
    max_gather: int,
    seed: int,
) -> dict[Key, Row]:
    """Apply the history through LaneGroup, in threads, to any target and return the rows it ends with.

    `open_session`: a new Session of the target database; the table is created through it. Attempts of random
    length; some are abandoned without a drain, as a killed task is. Rows left in the table from before must
    be none.
    """
    rng = random.Random(seed)
    main, sessions = open_session(), [open_session() for _ in range(lanes)]
    layout = Layout(lanes=lanes)
    try:
        main.ensure_bookkeeping()
        main.create_table(table.table)
        epoch, _rows, _state = main.take_over(UNIT, "id", layout.encode(), lanes)
        done = False
        while not done:
            attempt = Attempt(main, epoch, table, layout)
            end = min(len(history.topic), attempt.start + rng.randint(1, 25))
            crash = rng.random() < 0.3
            done = end == len(history.topic) and not crash
            _threaded_batch(attempt, main, sessions, history, end, max_gather, crash=crash)
        rows = main.fetch_rows(table, None, 10_000)
        return {(row[0],): row for row in rows}
    finally:
        for session in [main, *sessions]:
            session.close()


def _threaded_batch(
    attempt: Attempt,
    main: Any,
    sessions: list[Any],
    history: TopicHistory,
    end: int,
    max_gather: int,
    *,
    crash: bool,
) -> None:
    driver = lane_driver()

    def commit(lane: int, batch: LaneBatch) -> Machine[None]:
        write(sessions[lane], attempt.rows, lane, batch)
        yield from ()

    group = LaneGroup(
        attempt.dispatcher,
        attempt.locks,
        commit,
        limits=LaneLimits(max_gather=max_gather),
        signals=driver.make_signals(attempt.layout.lanes),
    )

    def work() -> Machine[list[int]]:
        yield from group.start()
        for at in range(attempt.start, end, 4):
            yield from group.submit_changes(attempt.plan, attempt.routed(history.topic, at, min(end, at + 4)))
        idle = [] if crash else (yield from group.drain(attempt.mark))
        yield from group.close()
        return idle

    write_idle(main, attempt.rows, driver.run_machine(work()), attempt.mark)


def lane_driver() -> ThreadDriver:
    """The product's driver, for lanes alone: they never ask it for a target or for records."""
    nothing: Any = None
    return ThreadDriver(nothing, nothing, AttemptInputs(), {})
