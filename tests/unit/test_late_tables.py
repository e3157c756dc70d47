"""A table that is created, filled and altered while capture lags: every history, against a model of the
definition that was active."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from producer.barriers import impact
from producer.barriers.barriers import BarrierHandler
from producer.barriers.impact import StatementImpact
from producer.barriers.new_tables import NewTableCapture
from producer.binlog_format.log_event import LoggedStatement
from producer.decoders.row_codec import SourceContext, TransactionContext
from producer.definitions.requests import DefinitionPlace, Proof, ProvenDefinition, UnprovenDefinition
from producer.errors import TableStoppedError, TransientSourceError
from producer.loop.loop import LateTables
from producer.loop.rows import RowSender
from producer.ports import Clock
from producer.sources.changes import Barrier, LogMoment, TransactionHeader
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.start.restored_stops import FormerStops
from producer.start.started import StartedCapture
from producer.start.startup import CaptureStarter
from producer.start.topic_recovery import StopMark, TableTail, TopicFindings
from producer.statements.closure import ImpactedTables
from producer.statements.ddl import DmlStatement
from producer.statements.statement import parse_statement
from producer.stops import StoppedTable
from producer.tables import CapturedTables, TableName, TableState
from schemas.config.online_ddl import enable_all_tools
from schemas.problems import Problem
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.names import NameRules
from schemas.wire.position import DEFINITION_ROW, FIRST_SNAPSHOT_ROW, Position
from schemas.wire.records import Identity, StoredPosition, TableStop

NAME: TableName = ("bank", "n")
RECORD = StoredPosition(
    source="b1", gen=1, epoch=0, file="binlog.000003", pos=0, ts_ms=7,
    identity=Identity(server_uuid=None, server_id=1, version="11", gtid_set=None),
)  # fmt: skip
UNSEEN: Any = SimpleNamespace(
    prove_definitions=lambda _, names: dict.fromkeys(names, ProvenDefinition(None, None))
)
CONTEXT = SourceContext(connector="mariadb", form=MARIADB_FLAVOUR.table_map, name="b1", epoch=0, gen=1)


def version(number: int) -> Table:
    """The table after its `number`-th statement."""
    columns = tuple(
        Column(name=f"c{n}", type=ColumnType(kind=Kind.INT, bits=32), nullable=False) for n in range(number)
    )
    return Table(
        db="bank", name="n", columns=columns, key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="c0"),))
    )


class LaggingCapture:
    """`history`: what each place of the log has of the table, a statement or a row. `ahead`: how far the
    catalog is beyond what capture reads."""

    def __init__(self, history: list[str], ahead: int, *, snapshots: bool) -> None:
        self.history, self.ahead = history, ahead
        self.here = 0
        self.published: list[tuple[int, int]] = []  # (place, version it was decoded by)
        self.definitions: dict[Position, Table] = {}
        self.snapshot_at: int | None = None
        self.stopped_at: int | None = None
        self.captured = CapturedTables("rowlock", "b1")
        self.errors: dict[TableName, Problem] = {}
        self.started = StartedCapture(RECORD, CONTEXT, self.captured, {}, self.errors, fresh=False)
        self.there = 0  # messages that a predecessor has written since the start
        nothing: Any = SimpleNamespace(
            send=self.send,
            drain=lambda: None,
            open_topic=self.captured.get_topic,
            prove_definition=self.proof,
            offsets={},
        )
        self.concern = StatementImpact(self.captured, lambda *_: True, NameRules(), nothing)
        self.new_tables = NewTableCapture(
            self.started, nothing, nothing, lambda *_: True, self.changed, nothing, snapshots
        )
        self.barriers = BarrierHandler(
            self.started, nothing, nothing, lambda *_: True, self.changed, self.new_tables
        )
        self.sender = object.__new__(RowSender)
        self.sender._begins = self.started.begins

    def begins_as(self, former: LaggingCapture) -> LaggingCapture:
        """Set this up as a start that found in the topic what `former` had sent; `former` stored no position
        after its beginning."""
        tail = TableTail(definitions=dict(former.definitions))
        starter: Any = SimpleNamespace(captured=self.captured, writer=SimpleNamespace(send=lambda *_: None))
        self.captured.known.add(NAME)
        if CaptureStarter._restore_table(starter, self.started, NAME, tail):
            state = self.captured.tables[NAME]
            state.ahead = {at: table for at, table in tail.definitions.items() if at > state.defined_at}
        return self

    def send(self, _topic: str, _key: bytes, _value: bytes, stored: Callable[[int], None]) -> None:
        stored(self.there)

    def statements(self, upto: int) -> list[int]:
        return [at for at, what in enumerate(self.history[:upto]) if what == "statement"]

    def proof(self, place: DefinitionPlace, _name: TableName) -> Proof:
        """What producer.definitions says: the catalog is `ahead` places beyond the stream."""
        end = min(len(self.history), self.here + self.ahead + 1)
        shown = self.statements(end)
        if shown and shown[-1] > place.pos:
            return UnprovenDefinition((3, shown[-1]))
        return ProvenDefinition(version(len(shown)) if shown else None, None)

    def changed(self, state: TableState, _: TransactionContext) -> None:
        self.definitions[state.defined_at] = state.table
        if self.snapshot_at is None:
            self.snapshot_at = self.here

    def run(self) -> None:
        for at, what in enumerate(self.history):
            self.here = at
            try:
                self.statement() if what == "statement" else self.row()
            except TableStoppedError:
                self.stopped_at = self.here
                return

    def statement(self) -> None:
        sql = "ALTER TABLE n ADD COLUMN x INT" if self.statements(self.here) else "CREATE TABLE n (id INT)"
        header = TransactionHeader("binlog.000003", self.here, 0, 1, None)
        barrier = Barrier(header, parse_statement(LoggedStatement("bank", sql)), 0, self.here)
        _, stop = self.barriers.carry_out(
            barrier, self.concern.list_affected_tables(barrier), self.transaction()
        )
        if stop is not None:
            raise stop

    def row(self) -> None:
        state = self.captured.tables.get(NAME)
        waits = NAME in self.errors or NAME in self.started.late
        if state is None and not waits:
            state = self.new_tables.take_up_unknown_table(NAME, self.transaction())
        if state is not None and not self.sender._was_before_takeover(NAME, self.transaction()):
            self.published.append((self.here, len(state.table.columns)))

    def transaction(self) -> TransactionContext:
        return TransactionContext(
            id="x",
            gtid=None,
            file="binlog.000003",
            file_number=3,
            pos=self.here,
            ts_ms=1,
            server_id=1,
            made_ms=1,
        )


def histories() -> list[tuple[list[str], int]]:
    randomness = random.Random(7)
    found: list[tuple[list[str], int]] = []
    for _ in range(400):
        rest = randomness.choices(["statement", "row", "row"], k=randomness.randrange(8))
        found.append((["statement", *rest], randomness.choice([0, 1, 2, 3, 20])))
    return found


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_new_table_is_right_late_or_stopped(snapshots: bool) -> None:
    outcomes = set()
    for history, ahead in histories():
        capture = LaggingCapture(history, ahead, snapshots=snapshots)
        capture.run()
        for place, decoded_by in capture.published:
            assert decoded_by == len(capture.statements(place)), (history, ahead, "a wrong definition")
        rows = [at for at, what in enumerate(history) if what == "row"]
        seen = {place for place, _ in capture.published}
        if capture.stopped_at is None:
            missed = [at for at in rows if at not in seen]
            late = capture.snapshot_at if capture.snapshot_at is not None else len(history)
            assert all(at < late for at in missed), (history, ahead, "rows behind the beginning are lost")
            assert snapshots or not missed, (history, ahead, "nothing brings these rows")
            outcomes.add("late" if missed else "whole")
        else:
            assert ahead, "with capture running nothing stops"
            outcomes.add("stopped")
    assert outcomes >= ({"late", "whole"} if snapshots else {"stopped", "whole"})


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_start_before_where_a_table_was_taken_up_publishes_the_same_rows_again(snapshots: bool) -> None:
    """Capture was killed before it stored a later position: what it passed over until then it passes over
    again, and nothing else."""
    late = 0
    for history, ahead in histories():
        former = LaggingCapture(history, ahead, snapshots=snapshots)
        former.run()
        if former.stopped_at is None and former.definitions:
            again = LaggingCapture(history, 20, snapshots=snapshots).begins_as(former)
            again.run()
            assert again.published == former.published, (history, ahead)
            assert again.stopped_at is None, (history, ahead)
            late += former.snapshot_at not in (None, 0)
    assert late > 10 or not snapshots


@pytest.mark.parametrize(("late", "sql"), [(False, None), (True, None), (True, "ALTER TABLE n …")])
def test_a_table_that_a_predecessor_took_up_meanwhile_stops(late: bool, sql: str | None) -> None:
    """It had not ended, and wrote after our start had read the topic: readers take what it wrote, and then
    ours, without what is between."""
    for there, taken in ((0, True), (2, False)):
        capture = LaggingCapture(["statement", "row"], 0, snapshots=True)
        capture.there, capture.here = there, 1
        if late:
            capture.started.late[NAME] = (3, 0)
        takes_up: Any = capture.new_tables._take_up
        arguments = (NAME, version(1), (0, 3, 1, DEFINITION_ROW), capture.transaction(), sql)
        if taken:
            takes_up(*arguments)
            assert capture.snapshot_at == 1
        else:
            with pytest.raises(TableStoppedError, match="began to capture"):
                takes_up(*arguments)
            assert capture.snapshot_at is None


def test_a_table_that_both_take_up_at_its_statement_goes_on() -> None:
    """What the predecessor wrote is written again, at the same positions."""
    capture = LaggingCapture(["statement", "row"], 0, snapshots=True)
    capture.there = 5
    capture.run()
    assert (capture.published, capture.stopped_at) == ([(1, 1)], None)


@pytest.mark.parametrize("row", [DEFINITION_ROW, 0])
def test_what_stands_before_the_beginning_of_a_table_concerns_nobody(row: int) -> None:
    """A row or a statement led to it: rows at its place count; the statement takes the position that its
    definition has."""
    former = LaggingCapture(["row"] * 9, 0, snapshots=False)
    former.definitions = {(0, 3, 5, row): version(1)}
    again = LaggingCapture(former.history, 0, snapshots=False).begins_as(former)
    taken = {}
    for again.here in (4, 5):
        header = TransactionHeader("binlog.000003", again.here, 0, 1, None)
        statement = parse_statement(LoggedStatement("bank", "CREATE TABLE n (id INT)"))
        barrier = Barrier(header, statement, 0, again.here)
        verdicts = again.concern.list_affected_tables(barrier)
        if row == 0 or again.here == 4:
            taken[again.here] = again.barriers.carry_out(barrier, verdicts, again.transaction())
    assert taken == ({4: (0, None), 5: (1, None)} if row == 0 else {4: (0, None)})
    seen = []
    for again.here in (3, 4, 5, 6):
        seen.append(again.sender._was_before_takeover(NAME, again.transaction()))
    assert seen == [True, True, False, False]


def test_a_stopped_table_is_not_taken_up_again_though_its_topic_is_ahead() -> None:
    """A predecessor had read further than what is stored, and found the stop there."""
    captured, nobody = CapturedTables("rowlock", "b1"), Any
    stop = TableStop(
        cause="definition", at=(0, 3, 90, -1), file="f", pos=90, reason="r", remedy="m", since_ms=1
    )
    captured.stop_table(NAME, StoppedTable(stop))
    tail = TableTail(
        definitions={(0, 3, 50, DEFINITION_ROW): version(1)}, stop=StopMark(stop, (0, 3, 90, -1), 0)
    )
    started = StartedCapture(RECORD, CONTEXT, captured, {NAME: tail}, {}, fresh=False)
    parts: list[Any] = [nobody] * 8
    parts[6] = captured
    CaptureStarter(*parts)._define_new(started, [NAME])
    assert started.late == {}


def test_a_table_waits_until_its_definition_stands_above_all_that_its_topic_has() -> None:
    """A predecessor had sent its snapshot at this very place: above a definition there, below rows."""
    captured, taken = CapturedTables("rowlock", "b1"), list[TableName]()
    captured.get_topic(NAME).ceiling = (0, 3, 500, FIRST_SNAPSHOT_ROW + 1)
    started = StartedCapture(RECORD, CONTEXT, captured, {}, {}, fresh=False, late={NAME: (3, 4)})
    nothing: Any = None
    new_tables: Any = SimpleNamespace(take_up_unknown_table=lambda name, _: taken.append(name))
    rows: Any = SimpleNamespace(get_transaction_context=lambda header: header)
    tables = LateTables(
        started, Clock(lambda: 1.0, lambda: 1), new_tables=new_tables, rows=rows, stops=nothing
    )
    tables.take_up("binlog.000003", 500)
    assert (taken, started.late) == ([], {NAME: (3, 4)})
    tables.take_up("binlog.000003", 501)
    assert (taken, started.late) == ([NAME], {})


@pytest.mark.parametrize(
    ("unproven", "ceiling", "taken"),
    [
        ((3, 499), None, True),
        ((3, 500), None, False),  # a statement there may still have changed it
        ((3, 4), (0, 3, 500, DEFINITION_ROW), False),  # readers would drop a second definition there
        ((3, 4), (0, 3, 499, 2), True),
    ],
)
def test_a_late_table_is_defined_behind_all_that_is_unproven_and_all_that_its_topic_has(
    unproven: tuple[int, int], ceiling: Position | None, taken: bool
) -> None:
    """It is defined as of the stream's place; a stop there gets the place just before, above all that was
    sent."""
    captured = CapturedTables("rowlock", "b1")
    captured.get_topic(NAME).ceiling = ceiling
    started = StartedCapture(RECORD, CONTEXT, captured, {}, {}, fresh=False, late={NAME: unproven})
    error = TableStoppedError(frozenset([NAME]), "unfit", "it has no key", "give it one")
    did: list[Any] = []

    def first_sight(name: TableName, at: TransactionHeader) -> None:
        did.append((name, at))
        raise error

    new_tables: Any = SimpleNamespace(take_up_unknown_table=first_sight)
    rows: Any = SimpleNamespace(get_transaction_context=lambda header: header)
    stops: Any = SimpleNamespace(stop_tables=lambda *stop: did.append(stop))
    tables = LateTables(started, Clock(lambda: 1.0, lambda: 8), new_tables=new_tables, rows=rows, stops=stops)
    tables.take_up("binlog.000003", 500)
    here = TransactionHeader("binlog.000003", 500, 8, 0, None)
    assert did == ([(NAME, here), (error, LogMoment("binlog.000003", 499, 8))] if taken else [])
    assert (NAME in started.late) == (not taken)


@pytest.mark.parametrize(("there", "begins"), [(7, True), (9, False)])
def test_a_start_begins_anew_where_a_predecessor_has_just_taken_a_table_up(there: int, begins: bool) -> None:
    """Ours stands behind what it wrote, and what we write below that readers would take for repetitions."""
    captured = CapturedTables("rowlock", "b1")
    starter: Any = object.__new__(CaptureStarter)
    starter.captured = captured
    topic = captured.get_topic(NAME)
    topic.end = 7
    captured.tables[NAME] = TableState(
        NAME, topic, version(1), (0, 3, 5, DEFINITION_ROW), definition_offset=there
    )
    if begins:
        starter._require_alone([NAME, ("bank", "left_out")])
    else:
        with pytest.raises(
            TransientSourceError,
            match=r"an earlier capture process .* has just written to rowlock\.b1\.bank\.n\)",
        ):
            starter._require_alone([NAME])


def test_a_start_asks_for_definitions_where_it_has_seen_nothing_before() -> None:
    """Else it would not wait until the source has carried out what its log has."""
    asked: list[DefinitionPlace] = []

    class Definitions:
        def prove_definitions(self, place: DefinitionPlace, names: list[TableName]) -> dict[TableName, Proof]:
            asked.append(place)
            return dict.fromkeys(names, ProvenDefinition(None, Problem("it is a view")))

    captured = CapturedTables("rowlock", "b1")
    starter: Any = object.__new__(CaptureStarter)
    starter.captured, starter.source = captured, SimpleNamespace(definitions=Definitions())
    started = StartedCapture(RECORD, CONTEXT, captured, {}, {}, fresh=False)
    starter._define_new(started, [NAME])
    starter._define_new(started, [])
    assert asked == [DefinitionPlace("binlog.000003", 0, beginning=True)]
    assert started.errors == {NAME: Problem("it is a view")}


@pytest.mark.parametrize("later", [False, True])
def test_a_start_leaves_a_missing_table_to_a_later_statement_in_the_log(later: bool) -> None:
    """That is its DROP. Without one, the user may have lost a right: the table is not known to be gone."""
    captured = CapturedTables("rowlock", "b1")
    started = StartedCapture(RECORD, CONTEXT, captured, {}, {}, fresh=False)
    tables: Any = SimpleNamespace(names=NameRules(), examine_tables=lambda _: {})
    config: Any = SimpleNamespace(tables=["bank.*"], left_out_columns={}, online_ddl=enable_all_tools())
    writer: Any = None
    proof = UnprovenDefinition((3, 9)) if later else ProvenDefinition(None, None)
    definitions: Any = SimpleNamespace(prove_definitions=lambda _, names: dict.fromkeys(names, proof))
    found = {captured.assign_topic_name(NAME): TopicFindings(tables={NAME: TableTail()})}
    FormerStops(tables, definitions, config, writer, captured).take_over_stops(started, [], [NAME], found, {})
    assert {name: each.stop.cause for name, each in captured.stopped.items()} == (
        {} if later else {NAME: "unseen"}
    )


def test_a_copy_of_a_table_that_is_stopped_at_a_start_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be shown as running, and no other would begin."""
    captured = CapturedTables("rowlock", "b1")
    started = StartedCapture(RECORD, CONTEXT, captured, {}, {}, fresh=False)
    ended: list[tuple[str, str]] = []
    monkeypatch.setattr(
        type(started.copies), "handle_table_stop", lambda _, table, cause, *__: ended.append((table, cause))
    )
    tables: Any = SimpleNamespace(names=NameRules(), examine_tables=lambda _: {})
    config: Any = SimpleNamespace(tables=["bank.*"], left_out_columns={}, online_ddl=enable_all_tools())
    writer: Any = None
    found = {captured.assign_topic_name(NAME): TopicFindings(tables={NAME: TableTail()})}
    FormerStops(tables, UNSEEN, config, writer, captured).take_over_stops(started, [], [NAME], found, {})
    assert ended == [("bank.n", captured.stopped[NAME].stop.cause)]


@pytest.mark.parametrize(
    ("found", "events"), [(None, ["statement may affect every table"]), (frozenset([NAME]), [])]
)
def test_a_statement_that_may_change_every_table_is_logged(
    monkeypatch: pytest.MonkeyPatch, found: frozenset[TableName] | None, events: list[str]
) -> None:
    """It stops them all: a person has to see which one it was."""
    monkeypatch.setattr(impact, "build_definition_place", lambda _: None)
    captured: Any = SimpleNamespace(known=frozenset([NAME]), stopped={}, source="b1")
    reaches: Any = SimpleNamespace(find_impact=lambda *_: ImpactedTables(found, "a view was dropped: copy"))
    affected = StatementImpact(captured, lambda *_: True, NameRules(), reaches)
    statement = SimpleNamespace(kind=DmlStatement(frozenset()), tokens=[], sql="CALL p()")
    barrier: Any = SimpleNamespace(statement=statement)
    with capture_logs() as logs:
        [verdict] = affected._list_written_tables(barrier)
    assert (verdict.table, verdict.why) == (NAME, "a view was dropped: copy")
    assert [each["event"] for each in logs] == events


def test_a_start_asks_once_how_names_compare_however_many_tables_there_are() -> None:
    """The source is asked for it, and a bank has hundreds of tables."""
    asked = []

    class Tables:
        @property
        def names(self) -> NameRules:
            asked.append("names")
            return NameRules()

        def examine_tables(self, names: list[TableName]) -> dict[TableName, Any]:
            return {}

    captured = CapturedTables("rowlock", "b1")
    missing = [("bank", f"n{number}") for number in range(5)]
    config: Any = SimpleNamespace(tables=["bank.*"], left_out_columns={}, online_ddl=enable_all_tools())
    tables: Any = Tables()
    writer: Any = None
    stops = FormerStops(tables, UNSEEN, config, writer, captured)
    found = {captured.assign_topic_name(name): TopicFindings(tables={name: TableTail()}) for name in missing}
    stops.take_over_stops(
        StartedCapture(RECORD, CONTEXT, captured, {}, {}, fresh=False), [], missing, found, {}
    )
    assert (sorted(captured.stopped), asked) == (missing, ["names"])
