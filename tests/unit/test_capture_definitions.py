"""A definition is in its topic again well before retention takes the last one away: a run with a clock of its
own."""

from __future__ import annotations

import itertools
from threading import Event
from types import SimpleNamespace
from typing import Any

from producer.decoders.envelope import SourceContext, TopicTail
from producer.kafka.settings import RETENTION_MS
from producer.loop.loop import CaptureLoop
from producer.ports import Clock, Ports
from producer.sources.changes import Evidence, TimedEnd
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.start.positions import PositionStore
from producer.start.repeated_events import build_definition_context, send_definition, send_stop
from producer.start.started import StartedCapture
from producer.start.startup import collect_published
from producer.start.topic_recovery import TopicFindings
from producer.stops import StoppedTable
from producer.tables import CapturedTables, TableState, TopicState
from schemas.table.names import EXACT
from schemas.wire.position import DEFINITION_ROW, STOP_ROW, Position
from schemas.wire.records import Identity, StoredPosition, TableStop
from tests.kits.apply import account_table
from tests.kits.capture_story import UNUSED, source_config
from tests.stands.event_writer import TopicWriter

DEFINED: Position = (0, 2, 700, DEFINITION_ROW)
RECORD = StoredPosition(
    source="b1", gen=1, epoch=0, file="binlog.000003", pos=4, ts_ms=7,
    identity=Identity(server_uuid=None, server_id=1, version="11", gtid_set=None),
)  # fmt: skip
CONTEXT = SourceContext(connector="mariadb", form=MARIADB_FLAVOUR.table_map, name="b1", epoch=0, gen=1)
STEP_S = 600.0
RETENTION_S = RETENTION_MS / 1000


def table_state(name: str) -> TableState:
    topic = TopicState(f"rowlock.b1.bank.{name}", TopicTail(last=DEFINED), ceiling=DEFINED)
    return TableState(("bank", name), topic, account_table(name=name), DEFINED)


class IdleSource:
    """Time, the log without a transaction (`inside`: in the middle of one, between the clock's two figures),
    and Kafka."""

    def __init__(self, ends: float) -> None:
        self.now = 0.0
        self.ends = ends
        self.inside_from, self.inside_to = ends, ends
        self.stop = Event()
        self.writer = TopicWriter(clock=lambda: self.now)
        self.states = [table_state("acct"), table_state("log")]
        self.point = ("binlog.000003", 4)
        self.heard, self.delivered, self.objects_changed = False, None, (0, 0)

    @property
    def inside(self) -> bool:
        return self.inside_from <= self.now < self.inside_to

    begun = inside

    def read_changes(self, _timeout: float) -> list[Any]:
        self.now += STEP_S
        if self.now >= self.ends:
            self.stop.set()
        return []

    def keep_evidence(self, _file: str, _pos: int) -> None: ...

    def find_evidence(self) -> Evidence:
        """Nothing proves anything here."""
        return Evidence((), None)

    def close(self) -> None: ...

    def started(self) -> StartedCapture:
        """What a start has found out."""
        captured = CapturedTables("rowlock", "b1")
        captured.tables = {state.name: state for state in self.states}
        captured.topics = {state.topic.name: state.topic for state in self.states}
        return StartedCapture(RECORD, CONTEXT, captured, {}, {}, fresh=False)


def go(idle: IdleSource) -> None:
    """Run capture in a IdleSource until its time is over."""
    server = SimpleNamespace(read_timed_end=lambda: TimedEnd(*idle.point, RECORD.ts_ms))
    topics: Any = SimpleNamespace(count_partitions=dict, fetch_topic_ids=lambda _names: {})
    ports = Ports(
        writer=idle.writer, store=PositionStore("rowlock.b1.position"), topics=topics,
        open_log=lambda *_: idle, open_reader=UNUSED, server=lambda: server, names=EXACT, definitions=UNUSED,
        reaches=lambda _changed: UNUSED, clock=Clock(lambda: idle.now, lambda: RECORD.ts_ms),
        stopping=idle.stop.is_set,
    )  # fmt: skip
    loop = CaptureLoop(source_config(mysql=False, snapshot="never"), idle.started(), ports)
    while not idle.stop.is_set():
        loop.step_capture()


def test_every_definition_comes_again_well_within_retention() -> None:
    idle = IdleSource(ends=2 * RETENTION_S)
    go(idle)
    for state in idle.states:
        sent = idle.writer.events(state.topic.name)
        times = [0.0, *idle.writer.list_times(state.topic.name), idle.ends]
        assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= RETENTION_S / 3
        assert len(sent) < 60, "often is not meant"
        for event in sent:
            assert (event.op, event.definition, event.ddl) == ("m", state.table, None)
            assert event.source.position == DEFINED, "readers that have it drop it"
            assert (event.source.file, event.source.pos) == ("binlog.000002", 700)
            assert event.source.ts_ms == event.ts_ms > RECORD.ts_ms, "it would be taken for a lag"


def test_no_definition_in_the_middle_of_a_transaction() -> None:
    idle = IdleSource(ends=RETENTION_S)
    idle.inside_from, idle.inside_to = 0.0, RETENTION_S * 0.6
    go(idle)
    times = idle.writer.list_times("rowlock.b1.bank.acct")
    assert times
    assert idle.inside_to <= times[0] <= idle.inside_to + 2 * STEP_S, "and not a whole period later"


def test_the_topics_highest_position_survives_a_repeated_definition() -> None:
    state, writer = table_state("acct"), TopicWriter()
    highest = state.topic.tail.last = (0, 3, 500, 2)  # rows since the ceiling was noted
    send_definition(writer, CONTEXT, state, build_definition_context(RECORD, DEFINED))
    (event,) = writer.events(state.topic.name)
    assert event.source.prev == highest
    assert state.topic.tail.last == highest, "else the next event's prev would hide a gap"
    assert state.topic.ceiling == highest


def test_the_topics_highest_position_survives_a_stop_that_stands_lower() -> None:
    captured, writer = CapturedTables("rowlock", "b1"), TopicWriter()
    name = ("bank", "acct")
    stop = TableStop(
        cause="dropped", at=(0, 3, 100, -1), file="binlog.000003", pos=100, reason="…", remedy="x", since_ms=7
    )
    captured.stop_table(name, StoppedTable(stop, position=(0, 3, 100, STOP_ROW)))
    topic = captured.get_topic(name)
    highest = topic.tail.last = (0, 3, 500, 2)
    send_stop(writer, CONTEXT, captured, name, RECORD)
    (event,) = writer.events(topic.name)
    assert event.source.prev == highest
    assert (topic.tail.last, topic.ceiling) == (highest, highest)


def test_of_a_log_that_is_used_up_tables_without_a_row_in_their_topic_are_told() -> None:
    """Of such a table nothing says that its rows were ever published."""
    captured = CapturedTables("rowlock", "b1")
    for name, ceiling in (("none", None), ("defined", DEFINED), ("rows", (0, 3, 900, 1))):
        state = table_state(name)
        state.topic.ceiling = ceiling
        captured.tables[state.name], captured.topics[state.topic.name] = state, state.topic
    found = {captured.assign_topic_name(name): TopicFindings() for name in captured.tables}
    assert collect_published(found, captured, 0, captured_before=False).bare == {
        ("bank", "none"),
        ("bank", "defined"),
    }
