"""`rowlock status` without servers: the state of a unit, its position and its lag, as Kafka and the target
record them."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs
from pymysql.err import OperationalError
from rich.console import Console

from consumer.ordering.model import LaneProgress, QuarantineEntry, UnitState
from consumer.tables.stored import StoredDefinition
from producer.capture import ENDED_AS_ASKED
from producer.errors import CaptureError, SourceRefusedError, TransientSourceError
from rowlock.cli import main
from rowlock.commands import tables
from rowlock.commands.reasons import format_reason_lines, list_status_reasons
from rowlock.commands.tables import (
    build_sources_table,
    build_stops_table,
    build_unit_status_table,
)
from rowlock.coordinator.units import ApplyUnitName
from rowlock.errors import CommandError
from rowlock.inspect import headroom as of_check
from rowlock.inspect import status
from rowlock.inspect.observed import applied
from rowlock.inspect.observed.applied import AppliedReader, AppliedUnit
from rowlock.inspect.observed.source_status import TableStatus
from rowlock.inspect.observed.versions import ProcessVersion
from rowlock.inspect.placement import START_AGAIN, Placement
from rowlock.inspect.status import ApplyUnitStatus, Status, StatusReader
from rowlock.views import headroom, server_versions
from rowlock.views.kafka import OffsetSpan
from rowlock.views.retention import RetentionLimits
from rowlock.views.source import RetainedLog
from schemas.config.model import Config, load_config
from schemas.errors import ServerConnectError
from schemas.findings import Finding
from schemas.problems import Problem, encode_problem
from schemas.table.names import TableName, format_table_text
from schemas.wire.copies import CopyState, RemovedRows
from schemas.wire.event import EventEnvelope, Source
from schemas.wire.records import TableStop, Watermark
from tests.kits.apply import account_table
from tests.kits.command_line import CONFIG
from tests.kits.topic import usual_tables

TOPIC = "rowlock.b1.bank.acct"
NOW_MS = 1_790_000_000_000
CAPTURE, APPLY = "capture/b1", f"apply/p/{TOPIC}"


def row(name: str, **more: Any) -> dict[str, Any]:
    """A unit as REST gives it."""
    return {"unit": name, "health": "running", "reason": None, "remedy": None} | more


def ill(health: str, reason: str, remedy: str | None = None) -> Placement:
    """Both units are in the same trouble."""
    more = {"health": health, "reason": reason, "remedy": remedy}
    return Placement({name: row(name, **more) for name in (CAPTURE, APPLY)})


def lane(number: int, offset: int) -> LaneProgress:
    return LaneProgress(number, 5, 1, "id", offset, (0, 3, 100 + offset, 0), 7, "{}")


def event(ts_ms: int) -> EventEnvelope:
    source = Source(
        version="1.0", connector="mariadb", name="b1", ts_ms=ts_ms, snapshot="false", db="bank", table="acct",
        server_id=1, gtid=None, file="f.000003", pos=4, row=0, position=(0, 3, 4, 0), prev=None, gen=7,
    )  # fmt: skip
    return EventEnvelope(op="c", source=source, ts_ms=ts_ms)


@dataclass
class Seen:
    """What Kafka and the target hold. `events`: those that can be read, by offset; `asked`: offsets that
    were."""

    lanes: list[LaneProgress] = field(default_factory=list)
    stopped: str | None = None
    definition: str | None = None
    span: OffsetSpan = OffsetSpan(0, 10)  # noqa: RUF009 - frozen
    events: dict[int, EventEnvelope] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    idle_ms: int = 2_500
    target_fails: bool = False
    displaced: dict[str, int] = field(default_factory=dict)
    split: int = 1
    placement: Placement = field(
        default_factory=lambda: Placement({CAPTURE: row(CAPTURE), APPLY: row(APPLY)})
    )
    mark: dict[str, Any] = field(default_factory=dict)
    unreadable: bool = False
    kept: dict[str, RetentionLimits] = field(
        default_factory=lambda: {TOPIC: RetentionLimits(None, "retention.ms")}
    )
    produced: dict[int, int | None] = field(default_factory=dict)
    log: RetainedLog | None = None
    log_fails: Exception | None = None
    unmarked: bool = False
    has_topics: bool = True
    topic_id: str = "id"
    on_read: Callable[[], None] = lambda: None
    held: list[QuarantineEntry] = field(default_factory=list)

    # As rowlock.views.kafka.KafkaView

    def watermark(self, _source: str) -> tuple[int, Watermark] | None:
        self.on_read()
        if self.unreadable or self.unmarked:
            return None
        at = NOW_MS - self.idle_ms
        mark = Watermark(
            source="b1",
            gen=7,
            position=(0, 3, 500, -1),
            file="f.000003",
            commit_ts_ms=at,
            ts_ms=at,
            idle=True,
            **self.mark,
        )
        return 4, mark

    def partitions(self) -> dict[str, int]:
        self.on_read()
        return {TOPIC: self.split} if self.has_topics else {}

    def tables(self, _sources: Iterable[str], topics: Collection[str]) -> dict[str, TableName]:
        return usual_tables(topics)

    def event(self, topic: str, offset: int) -> EventEnvelope | None:
        assert topic == TOPIC
        self.asked.append(offset)
        return self.events.get(offset)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    return load_config(file)


@pytest.fixture
def read(config: Config, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what status says of what is `Seen`."""
    return lambda seen: read_of(config, monkeypatch, seen)


def read_of(config: Config, monkeypatch: pytest.MonkeyPatch, seen: Seen) -> Status:
    @contextlib.contextmanager
    def session(*_: object) -> Iterator[Any]:
        if seen.target_fails:
            raise CommandError("target hq: it does not answer")
        seen.on_read()
        yield SimpleNamespace(
            list_unit_topics=lambda _: [TOPIC] if seen.lanes else [],
            read_progress=lambda _: (
                seen.lanes,
                UnitState(seen.definition, None, seen.stopped, NOW_MS - 5000 if seen.stopped else None),
            ),
            read_quarantine=lambda _: seen.held,
            count_displaced_rows=lambda _: seen.displaced,
        )

    def placement() -> Placement:
        seen.on_read()
        return seen.placement

    view = SimpleNamespace(
        read_watermark=seen.watermark,
        has_unreadable_watermark=lambda name: not seen.unmarked and seen.watermark(name) is None,
        count_partitions=seen.partitions,
        read_topic_tables=seen.tables,
        read_event=seen.event,
        read_debezium_commit_ms=lambda topic, offset: getattr(seen.event(topic, offset), "ts_ms", None),
        read_span=lambda _: seen.span,
        read_produced_ms=lambda _, offset: seen.produced.get(offset, NOW_MS),
        close=lambda: None,
    )

    def source_log(_: object, name: str) -> RetainedLog:
        if seen.log is None:
            raise CommandError(f"source {name}: it says nothing of its log", "GRANT") from seen.log_fails
        return seen.log

    settings = SimpleNamespace(
        read_ids=lambda topics: dict.fromkeys(topics, seen.topic_id),
        read_retention=lambda topics: {topic: seen.kept[topic] for topic in topics if topic in seen.kept},
    )
    monkeypatch.setattr(headroom, "read_source_log", source_log)
    for module in (status, of_check):
        monkeypatch.setattr(module, "KafkaView", lambda _: view)
        monkeypatch.setattr(module, "TopicSettings", lambda _: settings)
    monkeypatch.setattr(
        status, "PlacementReader", lambda _: SimpleNamespace(read_placement=placement, close=lambda: None)
    )
    monkeypatch.setattr(applied, "target_session", session)
    monkeypatch.setattr(status, "read_clock_ms", lambda: NOW_MS)
    return StatusReader(config).read_status()


def only(found: Status) -> ApplyUnitStatus:
    (unit,) = found.units
    return unit


def test_behind_the_slowest_lane_counts_and_the_lag_is_the_oldest_events_age(read: Any) -> None:
    seen = Seen([lane(0, 8), lane(1, 3), lane(2, 6)], events={4: event(NOW_MS - 12_345), 9: event(NOW_MS)})
    unit = only(read(seen))
    assert (unit.state, unit.offset, unit.end_offset, unit.lag_events) == ("behind", 3, 9, 6)
    assert unit.position == (0, 3, 103, 0)
    assert unit.lag_seconds == 12.345
    assert seen.asked == [4]
    assert unit.epoch == 5


@pytest.mark.parametrize(
    ("topic_id", "span", "stopped"),
    [
        ("new", OffsetSpan(0, 10), None),
        ("new", OffsetSpan(0, 500), None),
        ("new", OffsetSpan(0, 2), "it was deleted and created again"),
        ("id", OffsetSpan(0, 9), None),
        ("", OffsetSpan(0, 2), None),
    ],
)
def test_no_lag_is_shown_of_a_topic_with_other_offsets(
    read: Any, topic_id: str, span: OffsetSpan, stopped: str | None
) -> None:
    """What is applied has offsets of the former topic, which are not compared with it."""
    why = None if stopped is None else encode_problem(Problem(stopped, "rowlock copy bank.acct"))
    unit = only(read(Seen([lane(0, 9)], topic_id=topic_id, span=span, stopped=why)))
    assert (unit.lag_events, unit.lag_seconds) == (None, None)
    assert unit.state == ("behind" if stopped is None else "stopped")
    assert unit.reason == (stopped or status.LOST_EVENTS)


@pytest.mark.parametrize("topic_id", ["id", ""])
def test_a_topic_that_is_the_same_or_not_described_has_a_lag(read: Any, topic_id: str) -> None:
    unit = only(read(Seen([lane(0, 6)], topic_id=topic_id)))
    assert (unit.state, unit.lag_events, unit.reason) == ("behind", 3, None)


def test_current_is_as_far_behind_as_capture_may_be(read: Any) -> None:
    seen = Seen([lane(0, 9)])
    unit = only(read(seen))
    assert (unit.state, unit.lag_events, unit.lag_seconds) == ("current", 0, 2.5)
    assert seen.asked == [], "nothing has to be read"


def test_displaced_rows_are_counted_in_the_target(read: Any) -> None:
    assert only(read(Seen([lane(0, 9)]))).displaced == 0
    assert only(read(Seen([lane(0, 9)], displaced={TOPIC: 3, "another": 5}))).displaced == 3


def test_what_retention_deleted_is_not_asked_for(read: Any) -> None:
    seen = Seen([lane(0, 3)], span=OffsetSpan(6, 10), events={6: event(NOW_MS - 1_000)})
    assert only(read(seen)).lag_events == 4
    assert seen.asked == [6]


def test_an_age_that_cannot_be_told_is_none_and_never_below_zero(read: Any) -> None:
    assert only(read(Seen([lane(0, 3)]))).lag_seconds is None
    ahead = Seen([lane(0, 3)], events={4: event(NOW_MS + 5_000)})  # the source's clock is ahead of ours
    assert only(read(ahead)).lag_seconds == 0.0


def test_new_stopped_and_unknown(read: Any) -> None:
    new = only(read(Seen(events={0: event(NOW_MS - 60_000)})))
    assert (new.state, new.position, new.offset, new.lag_events, new.lag_seconds) == (
        "new",
        None,
        -1,
        10,
        60.0,
    )
    stopped = only(read(Seen([lane(0, 9)], stopped="a column was added")))
    assert (stopped.state, stopped.stopped) == ("stopped", "a column was added")
    assert (stopped.reason, stopped.remedy) == ("a column was added", None)
    assert stopped.since_ms == NOW_MS - 5000
    statement = Problem("denied", statement="GRANT SELECT")
    for problem in (Problem("a column was added", "copy it"), statement):
        stopped = only(read(Seen([lane(0, 9)], stopped=encode_problem(problem))))
        assert stopped.stopped == str(problem), "text for people, as it was before problems were values"
        assert (stopped.reason, stopped.remedy) == (problem.what, problem.action)
    found = read(Seen([lane(0, 9)], target_fails=True))
    assert only(found).state == "unknown"
    assert only(found).lag_events is None
    assert found.problems == ("target hq: it does not answer",)


def test_the_table_has_the_figures(read: Any) -> None:
    seen = Seen([lane(0, 3)], events={4: event(NOW_MS - 7_800)})
    cells = [next(iter(column.cells)) for column in build_unit_status_table(read(seen)).columns]
    assert cells == ["p", TOPIC, "behind", "f.000003:103", "3/9", "6", "7.8 s", ""]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_cuts_off_no_name(read: Any, width: int) -> None:
    """Topics and tables are distinguished by their ends."""
    printed = io.StringIO()
    table = build_unit_status_table(read(Seen([lane(0, 9)], stopped="the column x is missing: add it")))
    Console(file=printed, width=width).print(table)
    lines = [line.split("│")[2].strip() for line in printed.getvalue().splitlines() if line.startswith("│")]
    assert "".join(lines) == TOPIC
    assert "…" not in printed.getvalue()


def test_of_a_source_of_debezium_s_only_its_topics_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No watermark is looked for, and none that an earlier capture left there is believed."""
    file = tmp_path / "d.yaml"
    file.write_text(CONFIG.replace("type: mariadb", "type: mariadb, events: debezium"))
    seen = Seen([lane(0, 3)], events={4: event(NOW_MS - 7_800)})
    found = read_of(load_config(file), monkeypatch, seen)
    (source,) = found.sources
    assert (source.state, source.lag_seconds, source.captured_to_ms) == ("external", None, None)
    assert (only(found).state, only(found).lag_events, only(found).lag_seconds) == ("behind", 6, 7.8)
    seen.lanes = [lane(0, 9)]
    found = read_of(load_config(file), monkeypatch, seen)
    assert (only(found).state, only(found).lag_events, only(found).lag_seconds) == ("current", 0, None)


def test_a_topic_with_several_partitions_is_a_problem(read: Any) -> None:
    (problem,) = read(Seen([], split=3)).problems
    assert problem.startswith(f"{TOPIC} has 3 partitions")


@pytest.mark.parametrize("applied_before", [True, False])
def test_a_kafka_that_has_lost_its_data_is_a_problem(read: Any, applied_before: bool) -> None:
    """It looked like one that nothing has run with yet."""
    lanes = [lane(0, 5)] if applied_before else []
    found = read(Seen(lanes, unmarked=True, has_topics=False))
    assert found.units == ()
    assert len(found.problems) == applied_before
    for problem in found.problems:
        assert problem.startswith("source b1: Kafka at 127.0.0.1:1 has none of the topics that target hq has")
        assert "all tables of the source are copied again" in problem
    assert read(Seen(lanes, unmarked=True)).problems == (), "its topics are there"
    failed = read(Seen(lanes, unmarked=True, has_topics=False, target_fails=True)).problems
    assert failed == ("target hq: it does not answer",), "so it is not known"


def test_targets_are_not_asked_for_lost_topics_while_sources_are_captured(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AppliedReader, "list_topics", lambda _: pytest.fail("asked"))
    assert read(Seen([lane(0, 5)])).problems == ()


def test_the_clock_is_this_machines(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        status,
        "KafkaView",
        lambda _: SimpleNamespace(
            read_watermark=lambda _: None,
            has_unreadable_watermark=lambda _: False,
            count_partitions=dict,
            read_topic_tables=lambda *_: {},
        ),
    )
    monkeypatch.setattr(status, "PlacementReader", lambda _: SimpleNamespace(read_placement=Placement))
    before = int(time.time() * 1000)
    assert before <= StatusReader(config).read_status().time_ms <= int(time.time() * 1000)


STOP = TableStop(
    cause="dropped", at=(0, 3, 400, -1), file="f.000003", pos=400, reason="bank.acct was dropped",
    remedy="start over", since_ms=NOW_MS - 60_000,
)  # fmt: skip


def test_what_the_coordinator_knows_of_a_dead_capture_is_said_whatever_the_watermark_says(read: Any) -> None:
    fresh: dict[str, Any] = {"idle_ms": 500}
    for health in ("stopped", "restarting"):
        found = read(Seen([lane(0, 9)], placement=ill(health, "log_bin is OFF", "switch it on"), **fresh))
        (source,) = found.sources
        assert (source.state, source.reason, source.remedy) == (health, "log_bin is OFF", "switch it on")
        assert (only(found).state, only(found).reason) == (health, "log_bin is OFF")
        assert not found.healthy


def test_a_running_unit_has_the_reason_for_which_it_waits(read: Any) -> None:
    found = read(
        Seen([lane(0, 3)], placement=ill("running", "a row is locked", "end the session"), idle_ms=500)
    )
    assert (only(found).state, only(found).reason, only(found).remedy) == (
        "behind",
        "a row is locked",
        "end the session",
    )
    assert only(found).stopped is None
    assert found.healthy


def test_all_is_well_where_everything_runs(read: Any) -> None:
    found = read(Seen([lane(0, 9)], idle_ms=500))
    assert found.healthy
    assert (found.sources[0].state, found.sources[0].idle) == ("running", True)
    assert [column.header for column in build_sources_table(found).columns][-1] == "snapshot pending"


def test_a_stop_by_capture_is_the_units_with_cause_time_and_remedy(read: Any) -> None:
    """Also before apply has come to it; and a table without a unit has a line of its own."""
    other = {
        "bank.other": structs.replace(
            STOP, reason="bank.other has a value that cannot be decoded", cause="value"
        )
    }
    mark = {
        "stops": {"bank.acct": STOP} | other,
        "left_out": {"bank.keyless": "it has no key: add a primary key"},
    }
    found = read(Seen([lane(0, 9)], idle_ms=500, mark=mark))
    unit = only(found)
    assert (unit.state, unit.cause, unit.since_ms) == ("stopped", "dropped", NOW_MS - 60_000)
    assert (unit.reason, unit.remedy) == ("bank.acct was dropped", "start over")
    assert found.sources[0].state == "running", "capture goes on with the other tables"
    assert not found.healthy
    assert [(each.table, each.state) for each in found.sources[0].tables] == [
        ("bank.acct", "stopped"),
        ("bank.keyless", "left out"),
        ("bank.other", "stopped"),
    ]
    table = build_stops_table(found)
    assert table is not None
    assert list(table.columns[1].cells) == ["bank.keyless", "bank.other"], "each is said once"
    assert list(table.columns[3].cells) == ["", "value at f.000003:400"]
    assert format_reason_lines(list_status_reasons(found)) == [
        "",
        f"{TOPIC} (60.0 s ago): bank.acct was dropped",
        "bank.other of source b1 (60.0 s ago): bank.other has a value that cannot be decoded",
        "  what to do: start over",
        "",
        "bank.keyless of source b1: it has no key",
        "  what to do: add a primary key",
    ]


def test_a_table_that_was_never_captured_is_left_out_also_as_a_unit(read: Any) -> None:
    """Its topic exists already, so it has a unit."""
    found = read(Seen([], mark={"left_out": {"bank.acct": "it has no key: add a primary key"}}))
    unit = only(found)
    assert (unit.state, unit.reason, unit.remedy) == ("left out", "it has no key", "add a primary key")
    assert unit.stopped == "it has no key: add a primary key"
    assert [each.state for each in found.sources[0].tables] == ["left out"]
    assert not found.healthy


@pytest.mark.parametrize("place", [("bank.2024", "acct"), ("bank", "2024.my acct")])
def test_a_stop_of_a_table_with_a_dot_in_its_name_is_the_units(place: tuple[str, str]) -> None:
    stopped = TableStatus(format_table_text(*place), "stopped", "seen", "do")
    others = [TableStatus("bank.acct", "stopped", "x", "y"), stopped]
    assert status.find_capture_stop(place, others) is stopped


def test_place_of_a_unit_is_named_after_its_table_and_not_after_the_log(read: Any) -> None:
    """A table that no_leader changes stays there, however far capture is."""
    found = read(Seen([lane(0, 9)]))
    unit = only(found)
    assert (unit.state, unit.at, found.sources[0].position) == ("current", "f.000003:109", "f.000003:500")
    assert [column.header for column in build_unit_status_table(found).columns][3] == "last event at"


@pytest.mark.parametrize(
    ("patterns", "phase", "shown"),
    [
        (["bank.*"], "refused", True),
        (["bank.*", "!bank.acct"], "refused", False),
        (["bank.*", "!bank.acct"], "cancelled", False),
        (["bank.*", "!bank.acct"], "running", True),
        (["BANK.*"], "refused", True),
    ],
)
def test_a_copy_that_was_refused_is_shown_until_its_table_is_excluded(
    config: Config, monkeypatch: pytest.MonkeyPatch, patterns: list[str], phase: Any, shown: bool
) -> None:
    """Only the server knows whether it compares names by case: in doubt, the copy is shown."""
    config.sources["b1"].tables[:] = patterns
    asked = CopyState(
        id="c", db="bank", table="acct", by="capture", phase=phase, requested_ms=1, reason="exclude the table"
    )
    found = read_of(config, monkeypatch, Seen([lane(0, 9)], mark={"copies": {"bank.acct": asked}}))
    assert [each.table for each in found.sources[0].copies] == (["bank.acct"] if shown else [])


def held_event(offset: int, key: int) -> QuarantineEntry:
    return QuarantineEntry(offset, 0, "public.acct", f"[{key}]", f"k{key}", "{}", "too long", 1)


@pytest.mark.parametrize(
    ("keys", "cell"),
    [([], ""), ([5, 5], "1 row"), ([5, 6, 5, 7], "3 rows")],
    ids=["none", "one row", "three"],
)
def test_rows_in_quarantine_are_counted_once_each(
    read: Any, capsys: pytest.CaptureFixture[str], keys: list[int], cell: str
) -> None:
    """Each further change of a refused row is held with it: a person looks for the row."""
    found = read(Seen([lane(0, 9)], held=[held_event(n, key) for n, key in enumerate(keys)]))
    assert (only(found).quarantined, only(found).quarantined_rows) == (len(keys), len(set(keys)))
    tables.make_console().print(build_unit_status_table(found))
    head, line = [
        [cell.strip() for cell in line.split(line[0])]
        for line in capsys.readouterr().out.splitlines()
        if "pipeline" in line or TOPIC in line
    ]
    assert line[head.index("quarantine")] == cell


REFUSED = {"by": "operator", "phase": "refused", "reason": "the table has no key"}
DEBT = RemovedRows(id="d", offset=4, ddl="ALTER TABLE acct DROP PARTITION p1", since_ms=1)


@pytest.mark.parametrize(
    ("state", "seen", "shown"),
    [
        (REFUSED, {}, False),
        (REFUSED, {"mark": {"stops": {"bank.acct": STOP}}}, True),
        (REFUSED, {"stopped": "the definition cannot be proven: rowlock copy bank.acct"}, True),
        (REFUSED | {"by": "pipeline p"}, {}, True),
        (REFUSED | {"began_ms": 2}, {}, False),
        (REFUSED | {"began_ms": 2, "rows": 9}, {}, True),
        (REFUSED | {"retry_ms": 9}, {}, True),
        (REFUSED | {"removed": DEBT}, {}, True),
        (REFUSED | {"phase": "cancelled", "began_ms": 2}, {}, False),
        (REFUSED | {"phase": "cancelled", "removed": DEBT}, {}, True),
        (REFUSED | {"phase": "waiting"}, {}, True),
    ],
    ids=[
        "refused", "table stopped", "unit stopped", "asked by a program", "condition refused",
        "in the middle", "postponed", "rows to remove", "cancelled", "cancelled, rows to remove", "waits",
    ],
)  # fmt: skip
def test_an_ended_request_leaves_once_nothing_is_left_to_do(
    read: Any, state: dict[str, Any], seen: dict[str, Any], shown: bool
) -> None:
    """A person who asked for a copy sees the refusal in `rowlock copy`, for a day."""
    asked = CopyState(**{"id": "c", "db": "bank", "table": "acct", "requested_ms": 1, **state})
    mark = {**seen.get("mark", {}), "copies": {"bank.acct": asked}}
    found = read(Seen([lane(0, 9)], **{**seen, "mark": mark}))
    assert [each.table for each in found.sources[0].copies] == (["bank.acct"] if shown else [])


@pytest.mark.parametrize("by_capture", [True, False])
@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        ({"phase": "waiting"}, "nothing to do: its copy begins"),
        ({"phase": "refused", "retry_ms": 9}, "postponed until 14:31; nothing to do"),
        ({"phase": "refused"}, "rowlock copy bank.acct"),
        ({"phase": "done"}, "rowlock copy bank.acct"),
    ],
    ids=["waits", "postponed", "refused", "ended"],
)
def test_the_remedy_of_a_stop_agrees_with_its_copy(
    read: Any, state: dict[str, Any], remedy: str, by_capture: bool
) -> None:
    why = encode_problem(Problem("postponed until 14:31", "nothing to do"))
    asked = {"id": "c", "db": "bank", "table": "acct", "by": "pipeline p", "requested_ms": 1, "reason": why}
    mark: dict[str, Any] = {"copies": {"bank.acct": CopyState(**asked, **state)}}
    stop = Problem("the definition cannot be proven", "rowlock copy bank.acct")
    if by_capture:
        stops = {"bank.acct": structs.replace(STOP, reason=stop.what, remedy=stop.remedy)}
        found = read(Seen([lane(0, 9)], mark={**mark, "stops": stops}))
        assert found.sources[0].tables[0].remedy.startswith(remedy)
    else:
        found = read(Seen([lane(0, 9)], mark=mark, stopped=encode_problem(stop)))
    unit = only(found)
    assert (unit.state, unit.reason) == ("stopped", stop.what)
    assert unit.remedy is not None
    assert unit.remedy.startswith(remedy)


def test_where_nobody_leads_nothing_runs(read: Any) -> None:
    no_leader = Placement(problem="nothing runs: no coordinator leads: start `rowlock run`")
    ended = {"ended": "server_id is 0: SET GLOBAL server_id = 1;"}
    found = read(Seen([lane(0, 9)], placement=no_leader, idle_ms=500, mark=ended))
    (source,) = found.sources
    assert (source.state, source.reason, source.remedy) == (
        "stopped",
        "server_id is 0",
        "SET GLOBAL server_id = 1;",
    )
    assert (only(found).state, only(found).reason) == ("stopped", "no process runs it")
    assert only(found).remedy == START_AGAIN
    assert only(found).stopped is None, "it waits for no person"
    assert found.problems == (no_leader.problem,)
    assert not found.healthy
    late = read(Seen([lane(0, 9)], placement=no_leader, idle_ms=60_000))
    assert (late.sources[0].state, late.sources[0].reason) == ("stopped", "no process runs it")
    assert late.sources[0].remedy == START_AGAIN
    asked = read(Seen([lane(0, 9)], placement=no_leader, mark={"ended": ENDED_AS_ASKED})).sources[0]
    assert (asked.state, asked.reason, asked.remedy) == ("stopped", ENDED_AS_ASKED, START_AGAIN)


@pytest.mark.parametrize("marked", [True, False])
def test_a_start_that_the_source_refused_is_explained_by_its_refusal(
    read: Any, monkeypatch: pytest.MonkeyPatch, *, marked: bool
) -> None:
    """A refused start records nothing: the last watermark is that of the run before, if there was one."""
    problems = [ServerConnectError("access denied for u", "correct it", transient=False)]

    def refuse(_: object) -> Any:
        raise problems[0]

    monkeypatch.setattr(server_versions, "connect_source", refuse)
    no_leader = Placement(problem="nothing runs: no coordinator leads")
    seen = Seen(placement=no_leader, unmarked=not marked, mark={"ended": ENDED_AS_ASKED} if marked else {})
    source = read(seen).sources[0]
    assert (source.state, source.reason, source.remedy) == ("stopped", "access denied for u", "correct it")
    problems[0] = ServerConnectError("it does not answer", "start it", transient=True)
    assert read(seen).sources[0].reason == (ENDED_AS_ASKED if marked else None)
    problems[0] = ServerConnectError("access denied for u", "correct it", transient=False)
    running = ill("restarting", "the agent was lost")
    assert read(Seen(placement=running)).sources[0].reason == "the agent was lost", "capture reports its own"


def test_a_start_that_was_refused_for_the_source_is_explained_by_its_check(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = SourceRefusedError("source b1: user u lacks BINLOG MONITOR", "GRANT BINLOG MONITOR ON …")
    problems: list[CaptureError] = [lacks]
    closed: list[bool] = []

    def refuse() -> None:
        raise problems[0]

    monkeypatch.setattr(server_versions, "_find_connect_error", lambda _: None)
    monkeypatch.setattr(
        "producer.sources.known.load_source_database",
        lambda *_: SimpleNamespace(require_usable=refuse, close=lambda: closed.append(True)),
    )
    no_leader = Placement(problem="nothing runs: no coordinator leads")
    source = read(Seen(placement=no_leader, unmarked=True)).sources[0]
    assert (source.state, source.reason, source.remedy) == (
        "stopped",
        "user u lacks BINLOG MONITOR",
        "GRANT BINLOG MONITOR ON …",
    )
    problems[0] = TransientSourceError("it does not answer at the moment")
    source = read(Seen(placement=no_leader, unmarked=True)).sources[0]
    assert (source.state, source.reason) == ("new", None)
    assert closed == [True, True]


@pytest.mark.parametrize(("options", "screens"), [([], 0), (["--watch"], 1)])
def test_only_watch_clears_the_terminal(
    read: Any, config: Config, monkeypatch: pytest.MonkeyPatch, options: list[str], screens: int
) -> None:
    read(Seen([lane(0, 9)]))
    shown = io.StringIO()
    monkeypatch.setattr(tables, "make_console", lambda: Console(file=shown, force_terminal=True, width=200))

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    CliRunner().invoke(main, ["status", "-c", str(config.path), *options])
    assert TOPIC in shown.getvalue()
    assert shown.getvalue().count("\x1b[2J") == screens


def test_a_coordinator_that_cannot_be_asked_leaves_what_the_topics_say(read: Any) -> None:
    unasked = Placement(problem="coordinator c1 cannot be asked from here", known=False)
    assert read(Seen([lane(0, 9)], placement=unasked, idle_ms=500)).sources[0].state == "running"
    silent = read(Seen([lane(0, 9)], placement=unasked, idle_ms=60_000)).sources[0]
    assert silent.state == "silent"
    assert silent.reason is not None
    ended = read(Seen([lane(0, 9)], placement=unasked, idle_ms=500, mark={"ended": "away", "restarts": True}))
    assert (ended.sources[0].state, ended.sources[0].reason) == ("restarting", "away")


def test_what_the_start_left_out_is_stopped(read: Any) -> None:
    found = read(Seen([lane(0, 9)], placement=Placement({})))
    assert (found.sources[0].state, only(found).state) == ("stopped", "stopped")
    assert only(found).remedy == "`rowlock check` shows the reason"
    assert only(read(Seen(placement=Placement({CAPTURE: row(CAPTURE)})))).state in ("new", "stopped")


@pytest.mark.parametrize("applies", [True, False])
def test_what_is_placed_and_begins_during_a_look_is_not_called_left_out(
    config: Config, monkeypatch: pytest.MonkeyPatch, *, applies: bool
) -> None:
    """Whichever step of the look the placement comes before: what was not placed then has no progress and no
    watermark yet."""
    seen = Seen()
    # By the read of the look that they come before: each that is made counts.
    for moment in range(6):
        moments = iter(range(100))

        def tick(at: int = moment, moments: Iterator[int] = moments) -> None:
            placed = next(moments) >= at
            seen.placement = Placement({name: row(name) for name in (CAPTURE, APPLY)} if placed else {})
            seen.lanes = [lane(0, 9)] if placed and applies else []
            seen.unmarked = not placed

        seen.on_read = tick
        found = read_of(config, monkeypatch, seen)
        assert [each.reason for each in found.sources if each.state == "stopped"] == []
        assert [each.reason for each in found.units if each.state == "stopped"] == []
        assert found.problems == ()


def test_the_exit_code_says_whether_all_runs(read: Any, config: Config) -> None:
    for placement, code in ((ill("stopped", "seen", "mend"), 1), (Seen().placement, 0)):
        read(Seen([lane(0, 9)], placement=placement, idle_ms=500))
        result = CliRunner().invoke(main, ["status", "-c", str(config.path), "--output", "json"])
        assert result.exit_code == code, result.output
        assert json.loads(result.stdout)["units"][0]["topic"] == TOPIC
        shown = CliRunner().invoke(main, ["status", "-c", str(config.path)])
        assert shown.exit_code == code
        assert TOPIC in shown.stdout


@pytest.mark.parametrize("width", [80, 120])
def test_reasons_and_remedies_are_whole_lines_below_the_compact_tables(
    read: Any, config: Config, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    reason, remedy = "the column x " + "is missing " * 20, "ALTER TABLE acct " + "ADD COLUMN x " * 20
    shown = io.StringIO()
    monkeypatch.setattr(tables, "make_console", lambda: Console(file=shown, width=width))

    def show(seen: Seen) -> list[str]:
        read(seen)
        shown.seek(0)
        shown.truncate()
        CliRunner().invoke(main, ["status", "-c", str(config.path)])
        return shown.getvalue().splitlines()

    well = show(Seen([lane(0, 9)], idle_ms=500))
    ill = show(Seen([lane(0, 9)], idle_ms=500, stopped=encode_problem(Problem(reason, remedy))))
    *table, empty, why, what = ill
    assert (empty, why, what) == ("", f"{TOPIC} (5.0 s ago): {reason}", f"  what to do: {remedy}")
    assert len(table) == len(well)
    assert table[0] == well[0]


def test_one_reason_of_many_units_is_printed_once_with_their_number(read: Any) -> None:
    found = read(Seen([lane(0, 9)], placement=Placement(problem="nothing runs"), idle_ms=60_000))
    units = tuple(structs.replace(only(found), topic=f"t{number}") for number in range(9))
    lines = format_reason_lines(list_status_reasons(structs.replace(found, units=units)))
    names = "source b1, t0, t1, t2, t3 and 5 more"
    assert lines == ["", f"{names}: no process runs it", f"  what to do: {START_AGAIN}"]
    units = tuple(structs.replace(only(found), pipeline=name) for name in "pq")
    lines = format_reason_lines(list_status_reasons(structs.replace(found, units=units)))
    assert lines[1].startswith(f"source b1, {TOPIC} of pipeline p, {TOPIC} of pipeline q: ")


def test_a_watermark_that_cannot_be_read_is_told(read: Any) -> None:
    """Else its source would look as if it had never been captured, and its stopped tables as if they ran."""
    status = read(Seen(unreadable=True))
    [problem] = status.problems
    assert "the last watermark of source b1 cannot be read" in problem
    assert read(Seen()).problems == ()


HOUR_MS, DAY_S = 3_600_000, 86_400.0
WEEK = RetentionLimits(7 * DAY_S, "retention.ms")


def late(hours: float, **more: Any) -> Seen:
    """The event at offset 4 is not applied, and was committed and captured that long ago."""
    at = NOW_MS - round(hours * HOUR_MS)
    return Seen([lane(0, 3)], events={4: event(at)}, produced={4: at}, **more)


def test_a_backlog_that_kafka_will_delete_is_an_alarm_while_half_of_the_time_is_left(read: Any) -> None:
    fine = read(late(80, kept={TOPIC: WEEK}))
    assert (only(fine).headroom_seconds, fine.problems, fine.healthy) == (88 * 3600, (), True)
    alarm = read(late(90, kept={TOPIC: WEEK}))
    assert (only(alarm).headroom_seconds, alarm.healthy) == (78 * 3600, False)
    (reported,) = alarm.problems
    assert "it is kept for 7.0 days (retention.ms)" in reported
    assert "pipeline p has not applied is 3.8 days old: it may be deleted in 3.2 days" in reported
    assert reported.startswith(f"topic {TOPIC}: ")


def test_what_was_captured_late_is_kept_from_then_on(read: Any) -> None:
    """Kafka deletes by the time of its record, not by that of the commit."""
    seen = late(200, kept={TOPIC: WEEK})
    seen.produced[4] = NOW_MS - HOUR_MS
    found = read(seen)
    assert (only(found).headroom_seconds, found.problems) == (7 * DAY_S - 3600, ())


def test_an_event_that_cannot_be_decoded_is_as_old_as_kafka_says(read: Any) -> None:
    seen = late(90, kept={TOPIC: WEEK})
    seen.events.clear()
    found = read(seen)
    assert (only(found).lag_seconds, only(found).headroom_seconds) == (None, 78 * 3600)
    assert len(found.problems) == 1


def test_a_topic_whose_settings_may_not_be_read_is_said_once_something_is_old(read: Any) -> None:
    assert read(late(0.01, kept={})).problems == ()
    (reported,) = read(late(1, kept={})).problems
    assert "Kafka does not show its settings: allow the user to describe" in reported


def test_a_source_whose_log_will_be_purged_is_an_alarm(read: Any) -> None:
    log = RetainedLog(
        RetentionLimits(DAY_S, "binlog_expire_logs_seconds"), (("f.000002", 7), ("f.000003", 9))
    )
    (source,) = read(Seen(idle_ms=11 * HOUR_MS, log=log)).sources
    assert source.headroom_seconds == 13 * 3600
    found = read(Seen(idle_ms=13 * HOUR_MS, log=log))
    assert found.sources[0].headroom_seconds == 11 * 3600
    (reported,) = found.problems
    assert reported.startswith(
        "source b1: its log is kept for 24.0 hours (binlog_expire_logs_seconds), and the "
        "oldest that capture has not read"
    )


def test_a_log_that_is_cut_by_size_is_an_alarm_too(read: Any) -> None:
    files = (("f.000002", 900), ("f.000003", 501), ("f.000004", 100))
    log = RetainedLog(RetentionLimits(None, "expire_logs_days", 1200, "max_binlog_total_size"), files)
    (reported,) = read(Seen(idle_ms=HOUR_MS, log=log)).problems
    assert "up to 1.2 KiB (max_binlog_total_size)" in reported
    assert "it has 601 bytes: that may be deleted once 599 bytes more are written" in reported
    assert read(Seen(idle_ms=HOUR_MS, log=log._replace(files=files[:1]))).problems == (), (
        "the position's file is gone"
    )


def test_neither_source_nor_kafka_is_asked_while_nothing_is_old_and_a_source_that_is_down_is_no_second_problem(  # noqa: E501
    read: Any,
) -> None:
    found = read(Seen([lane(0, 9)]))
    assert (found.problems, only(found).headroom_seconds, found.sources[0].headroom_seconds) == (
        (),
        None,
        None,
    )
    assert read(Seen([lane(0, 9)], idle_ms=HOUR_MS)).problems == ()


def test_check_tells_the_headroom_of_all_that_is_captured_and_applied(config: Config, read: Any) -> None:
    log = RetainedLog(RetentionLimits(None, "expire_logs_days"), (("f.000003", 600),))
    topic_kept = RetentionLimits(3600.0, "retention.ms", 1 << 30, "retention.bytes")
    read(Seen([lane(0, 9)], log=log, kept={TOPIC: topic_kept}))
    (source, topic), warnings = of_check.measure_headroom(config, [])
    assert (
        str(source) == "source b1: its log is kept for ever; the oldest that capture has not read is 2 s old"
    )
    assert (
        str(topic)
        == f"topic {TOPIC}: it is kept for 60.0 minutes (retention.ms), up to 1.0 GiB (retention.bytes); "
        "no backlog; headroom 60.0 minutes"
    )
    age, size = (each.message for each in warnings)
    assert "kept for 60.0 minutes only (retention.ms)" in age
    assert "cut to 1.0 GiB (retention.bytes), however much of it pipeline p has not applied" in size
    assert topic.as_dict()["headroom_seconds"] == 3600.0


def test_a_log_that_is_kept_too_briefly_is_found_without_kafka(config: Config, read: Any) -> None:
    brief = RetentionLimits(60.0, "expire_logs_days")
    read(Seen([lane(0, 9)], log=RetainedLog(brief, (("f.000003", 600),))))
    (warning,) = of_check.list_short_logs(config, [])
    assert (warning.place, warning.level) == ("source b1", "warning")
    assert "its log is kept for 60 s only (expire_logs_days)" in warning.message
    read(Seen([lane(0, 9)], log=None))
    assert ["is not known" in each.message for each in of_check.list_short_logs(config, [])] == [True]


def test_a_right_that_the_check_of_the_source_names_is_not_named_again(config: Config, read: Any) -> None:
    denied = OperationalError(
        1227, "Access denied; you need (at least one of) the BINLOG MONITOR privilege(s)"
    )
    read(Seen([lane(0, 9)], log=None, log_fails=denied))
    reported = [Finding("error", "source b1", "user u lacks BINLOG MONITOR", "GRANT")]
    assert of_check.list_short_logs(config, reported) == []
    assert [each.place for each in of_check.measure_headroom(config, reported)[1]] == []
    other = [Finding("error", "source b1", "user u lacks SELECT", "GRANT SELECT")]
    for warnings in (of_check.list_short_logs(config, other), of_check.measure_headroom(config, other)[1]):
        assert ["is not known" in each.message for each in warnings] == [True], "denied all the same"


def test_check_says_what_it_cannot_tell(config: Config, read: Any) -> None:
    read(late(1, kept={}))
    found, (down, hidden) = of_check.measure_headroom(config, [])
    assert found == []
    assert (down.place, down.remedy) == ("source b1", "GRANT")
    assert "is not known: source b1: it says nothing of its log" in down.message
    assert "does not show its settings" in hidden.message
    unread = late(1, kept={TOPIC: WEEK})
    unread.produced[4] = None
    read(unread)
    assert [
        "at offset 4 cannot be read" in each.message for each in of_check.measure_headroom(config, [])[1]
    ] == [
        False,
        True,
    ]


def test_versions_of_processes_are_part_of_the_status(read: Any, config: Config) -> None:
    versions = (ProcessVersion("coordinator", "c1", "0.2.0"), ProcessVersion("agent", "a1", None))
    placed = Placement({name: row(name) for name in (CAPTURE, APPLY)}, versions=versions)
    assert read(Seen([lane(0, 9)], placement=placed)).as_dict()["versions"] == (
        {"kind": "coordinator", "name": "c1", "version": "0.2.0"},
        {"kind": "agent", "name": "a1", "version": None},
    )
    shown = CliRunner().invoke(main, ["status", "-c", str(config.path)]).stdout.splitlines()
    assert shown[-2:] == ["rowlock 0.2.0: coordinator c1", "rowlock ?: agent a1"]


def test_a_file_that_the_server_no_longer_has_is_of_no_size() -> None:
    log = RetainedLog(RetentionLimits(None, ""), (("b.1", 10), ("b.2", 5)))
    assert [log.count_bytes_from(file) for file in ("b.1", "b.2", "b.3")] == [15, 5, 0]


def test_rows_that_a_statement_removed_are_shown_at_the_running_unit(read: Any) -> None:
    sql, noon_ms = "ALTER TABLE acct DROP PARTITION p0", 1790856000000
    debt = RemovedRows.build_from_statement((1, "b.000002", 99), sql, offset=3, since_ms=noon_ms)
    definition = StoredDefinition(account_table(), removed=debt).encode()
    status = read(Seen(lanes=[lane(0, 9)], definition=definition))
    (unit,) = status.units
    assert (unit.state, unit.remedy) == ("current", None)
    assert unit.reason.endswith(f"may still have; the last, at b.000002:99: {sql}")
    (shown,) = status.as_dict()["units"]
    assert shown["debt"] == {"statement": sql, "statements": 1, "at": "b.000002:99", "since_ms": noon_ms}


def test_debt_without_place_in_the_log_names_none(read: Any) -> None:
    """A copy that begins over unread statements notes a debt, too (attempt/copies/begin.py)."""
    debt = RemovedRows(id="rows removed before offset 4", offset=3, ddl="one more", since_ms=1)
    definition = StoredDefinition(account_table(), removed=debt).encode()
    (unit,) = read(Seen(lanes=[lane(0, 9)], definition=definition)).units
    assert unit.reason == (
        "1 statement(s) since 1970-01-01 00:00 UTC removed rows that targets may still have; "
        "the last: one more"
    )
    assert unit.debt.at is None


@pytest.mark.parametrize(("changed", "outdated"), [((), False), (("where",), True)])
def test_rows_of_a_topic_with_other_options_are_outdated(
    monkeypatch: pytest.MonkeyPatch, changed: tuple[str, ...], outdated: bool
) -> None:
    reader: Any = object.__new__(AppliedReader)
    reader._config = SimpleNamespace(
        pipelines={"p": None},
        targets={"t": SimpleNamespace(type="kafka")},
        sources={"b1": SimpleNamespace(events="rowlock")},
    )
    monkeypatch.setattr(applied, "find_target_kind", lambda _: SimpleNamespace(events=True))
    monkeypatch.setattr(applied, "build_pipeline_routes", lambda *_: ())
    monkeypatch.setattr(applied, "resolve_route", lambda *_: SimpleNamespace(topic="options"))
    session: Any = SimpleNamespace(find_outdated_options=lambda *_: changed)
    state = UnitState(StoredDefinition(account_table()).encode(), None, None)
    unit = AppliedUnit(ApplyUnitName("p", "b1", TOPIC, "t"), None, state, OffsetSpan(0, 0), 0)
    found = reader._with_topic(session, unit)
    assert found.options == changed
    assert (found.outdated is not None) is outdated
