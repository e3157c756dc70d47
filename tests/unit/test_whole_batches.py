"""What a slot makes of ranges of topics for a target of whole batches, without Kafka: the topics are lists,
the target is a folder of JSON files that the configuration names."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml
from structlog.testing import capture_logs

from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.errors import TransientError, UnitStoppedError
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import ApplyUnit
from consumer.slots import served_pipeline
from consumer.slots.connections import ignore_unreachable
from consumer.slots.messages import ServeUnit
from consumer.slots.pipeline import WHOLE_BATCH, PipelineSettings
from consumer.slots.schedule import ServedUnit, Turn
from consumer.slots.served_pipeline import ServedPipeline
from consumer.tables.router import resolve_route
from consumer.targets.dialect import Dialect
from rowlock.errors import CommandError
from rowlock.inspect import check
from rowlock.inspect.checks.flows import TableFlow
from rowlock.inspect.pairs import TablePair
from rowlock.inspect.quarantine import EntrySelection, resolve_quarantine
from rowlock.inspect.verify import verify_pairs
from schemas.config.kinds.targets import TARGET_KINDS
from schemas.config.model import Config, load_config
from schemas.table.model import Row
from schemas.wire.codec import encode_event_value
from schemas.wire.event import EventEnvelope
from schemas.wire.records import format_former_table_topic
from tests.kits.apply import FakeSource, account_table
from tests.stands import json_folder
from tests.stands.json_folder import JsonFolder

SLICE = 100


TopicRange = tuple[str, int, int]
"""(topic, first offset, last offset), both inclusive."""


@dataclass
class Driven:
    """Units of a pipeline into `folder`, and the pipeline in a slot; `asked`: which records were read, by
    topic."""

    place: Path
    folder: JsonFolder
    config: Config
    settings: PipelineSettings
    topics: dict[str, list[bytes]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    asked: list[TopicRange] = field(default_factory=list)
    trouble: dict[str, Exception] = field(default_factory=dict)
    reading: Callable[[], None] = lambda: None
    served: ServedPipeline | None = None
    releasing: bool = False

    def unit(self, source: FakeSource) -> str:
        """Take the unit of a source's table over, and write its definition; returns its topic."""
        topic = format_former_table_topic("topic", source.name, source.table.db, source.table.name)
        self.topics[topic] = []
        self.write(topic, source.definition())
        self.take(topic)
        return topic

    def take(self, topic: str) -> None:
        unit = ApplyUnit("p", topic)
        self.epochs[topic], _, _ = self.folder.take_over(unit, "id", self.settings.layout, 1)

    def write(self, topic: str, *events: EventEnvelope) -> None:
        self.topics[topic] += [encode_event_value(event) for event in events]

    def start(self) -> None:
        """Serve the pipeline, as after a crash: of the slot before nothing is left."""
        self.close()
        self.served = ServedPipeline(
            self.settings, report=lambda _: None, take=lambda *_: None, lose=lambda *_: None,
            others_wait=lambda: False, on_unreachable=ignore_unreachable,
        )  # fmt: skip

    def close(self) -> None:
        if self.served is not None:
            self.served.close()

    def batch(self, *batch: TopicRange) -> dict[str, Report]:
        """Run an attempt over each range; returns what was reported of each topic."""
        return {topic: self.attempt(topic, first, last) for topic, first, last in batch}

    def attempt(self, topic: str, first: int, last: int) -> Report:
        assert self.served is not None
        serve = ServeUnit("r", topic, "s", 1, "id", self.epochs[topic], first - 1, last + 1)
        self.unit_there = ServedUnit(serve, first, last + 1)
        connections = self.served.make_connections(0)
        return self.served.run_attempt(Turn(self.unit_there, first, None), connections)[0]

    def whole(self, topic: str) -> TopicRange:
        return topic, 0, len(self.topics[topic]) - 1

    def read_new(
        self, options: object, topic: str, start: int, _most: int, note_end: Callable[[int], None]
    ) -> Iterator[RecordSlice]:
        end = self.unit_there.end
        note_end(end)
        yield from self.read_topic(options, topic, start, end)

    def read_topic(self, _options: object, topic: str, start: int, upto: int) -> Iterator[RecordSlice]:
        self.asked.append((topic, start, upto))
        if topic in self.trouble:
            raise self.trouble[topic]
        records: RecordSlice = [(start + at, raw) for at, raw in enumerate(self.topics[topic][start:upto])]
        for at in range(0, len(records), SLICE):
            yield records[at : at + SLICE]
            self.reading()

    def read_rest(self, options: object, topic: str, start: int) -> Iterator[RecordSlice]:
        yield from self.read_topic(options, topic, start, len(self.topics[topic]))

    def rows(self, topic: str) -> list[Row]:
        commits = self.folder.of(ApplyUnit("p", topic))
        return sorted(commits.rows(commits.last()).values(), key=str)

    def offset(self, topic: str) -> int:
        return self.folder.read_progress(ApplyUnit("p", topic))[0][0].offset


def rows_of(source: FakeSource) -> list[Row]:
    return sorted((tuple(row.values()) for row in source.rows.values()), key=str)


def configured(place: Path, **pipeline: Any) -> Path:
    server = {"host": "h", "port": 1, "user": "u", "password": "x"}
    file = place / "config.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "kafka": {"bootstrap": "127.0.0.1:1", "prefix": "topic"},
                "state_dir": str(place),
                "sources": {"s": {"type": "mysql", **server, "tables": ["bank.*"]}},
                "targets": {"t": {"type": "json", **server, "database": str(place / "folder")}},
                "pipelines": {"p": {"sources": ["s"], "target": "t", **pipeline}},
            }
        )
    )
    return file


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGET_KINDS, "json", json_folder.KIND)


@pytest.fixture
def driven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driven]:
    folder = JsonFolder(tmp_path / "folder")
    folder.ensure_bookkeeping()
    monkeypatch.setattr(json_folder, "JSON_FOLDER", Dialect("json", lambda _target, _name: folder))
    config = load_config(configured(tmp_path))
    settings = PipelineSettings.from_config(config, "p")
    settings.state_dir.mkdir(parents=True)
    found = Driven(tmp_path, folder, config, settings)
    monkeypatch.setattr(served_pipeline, "read_range", found.read_topic)
    monkeypatch.setattr(served_pipeline, "read_new_records", found.read_new)
    monkeypatch.setattr(served_pipeline, "read_rest", found.read_rest)
    with capture_logs():
        yield found
    found.close()


def source(name: str = "acct") -> FakeSource:
    return FakeSource(account_table(name=name), name="s")


def test_only_a_target_of_whole_batches_gets_long_transactions(driven: Driven) -> None:
    assert driven.settings.limits == WHOLE_BATCH
    assert replace(driven.settings, batches=False).limits == LaneLimits()


def test_settings_show_no_password_of_kafka(driven: Driven) -> None:
    """A traceback with its variables shows them."""
    settings = replace(driven.settings, kafka_options={"sasl.password": "secret"})
    assert "secret" not in repr(settings)


def test_a_range_is_one_commit(driven: Driven) -> None:
    """More than one transaction of a session would take, and than a slice holds."""
    bank = source()
    topic = driven.unit(bank)
    driven.start()
    assert driven.batch(driven.whole(topic))[topic].state == "ok"
    driven.write(topic, *bank.history(random.Random(1), 3_000, keys=200))
    before, end = driven.folder.commits, len(driven.topics[topic]) - 1
    report = driven.batch((topic, 1, end))[topic]
    assert (report.state, report.offset) == ("ok", end)
    assert driven.folder.commits == before + 1
    assert driven.rows(topic) == rows_of(bank)


@pytest.mark.parametrize("first", [0, 3, 40, 69])
def test_a_batch_begins_where_the_target_stands(driven: Driven, first: int) -> None:
    """Whatever Spark's batch holds: what is applied is dropped, what is missing before it is read."""
    bank = source()
    topic = driven.unit(bank)
    driven.write(topic, *bank.history(random.Random(2), 40, keys=10))
    driven.start()
    driven.batch((topic, 0, 30))
    assert driven.offset(topic) == 30
    driven.write(topic, *bank.history(random.Random(3), 40, keys=10))
    end = len(driven.topics[topic]) - 1
    driven.asked.clear()
    report = driven.batch((topic, first, end))[topic]
    assert (report.state, driven.offset(topic)) == ("ok", end)
    assert driven.asked == [(topic, first, end + 1), *([(topic, 31, first)] if first > 31 else [])]
    assert driven.rows(topic) == rows_of(bank)


def test_after_a_crash_between_the_commits_of_target_and_spark_nothing_is_applied_twice(
    driven: Driven,
) -> None:
    bank = source()
    topic = driven.unit(bank)
    driven.write(topic, *bank.history(random.Random(4), 60, keys=10))
    driven.start()
    first = driven.batch(driven.whole(topic))[topic]
    commits, rows = driven.folder.commits, driven.folder.of(ApplyUnit("p", topic)).last().rows
    driven.take(topic)
    driven.start()  # Spark had not noted the batch: it comes again
    again = driven.batch(driven.whole(topic))[topic]
    assert (again.state, again.applied, again.offset) == ("ok", 0, first.offset)
    assert again.dropped == len(driven.topics[topic])
    assert driven.folder.commits == commits
    assert driven.folder.of(ApplyUnit("p", topic)).last().rows == rows


def test_after_a_crash_before_the_commit_of_the_target_nothing_is_missing(driven: Driven) -> None:
    bank = source()
    topic = driven.unit(bank)
    driven.start()
    driven.batch(driven.whole(topic))
    driven.write(topic, *bank.history(random.Random(5), 60, keys=10))

    def die() -> None:
        raise SystemExit

    driven.folder.paused = die
    with pytest.raises(SystemExit):
        driven.batch((topic, 1, len(driven.topics[topic]) - 1))
    assert (driven.offset(topic), driven.rows(topic)) == (0, [])
    driven.folder.paused = lambda: None
    driven.take(topic)
    driven.start()
    bank.rows[99] = bank.row(99, None, 1)
    driven.write(topic, bank.put(bank.rows[99]))
    end = len(driven.topics[topic]) - 1
    assert driven.batch((topic, end, end))[topic].state == "ok", "what is missing before is read"
    assert driven.rows(topic) == rows_of(bank)


def test_a_unit_that_is_released_in_an_attempt_ends_with_what_was_read(driven: Driven) -> None:
    bank = source()
    topic = driven.unit(bank)
    driven.write(topic, *bank.history(random.Random(6), 5 * SLICE, keys=10))
    driven.start()

    def release() -> None:
        driven.unit_there.begin_release()

    driven.reading = release
    report = driven.batch(driven.whole(topic))[topic]
    assert (report.state, report.offset) == ("ok", SLICE - 1)


def test_a_definition_between_rows_that_says_the_same_passes(driven: Driven) -> None:
    bank = source()
    topic = driven.unit(bank)
    driven.write(topic, *bank.history(random.Random(7), 20, keys=5), bank.definition())
    driven.write(topic, *bank.history(random.Random(8), 20, keys=5))
    driven.start()
    assert driven.batch(driven.whole(topic))[topic].state == "ok"
    assert driven.rows(topic) == rows_of(bank)


def test_another_definition_stops_its_unit_in_front_of_it_and_no_other(driven: Driven) -> None:
    changed, other = source("changed"), source("other")
    topic, second = driven.unit(changed), driven.unit(other)
    driven.write(topic, *changed.history(random.Random(9), 20, keys=5))
    before = rows_of(changed)
    at = len(driven.topics[topic])
    driven.write(topic, changed.definition(ddl="ALTER TABLE changed", table=account_table(name="new")))
    driven.write(topic, changed.put(changed.row(77, None, 1)))
    driven.write(second, *other.history(random.Random(10), 20, keys=5))
    driven.start()
    reported = driven.batch(driven.whole(topic), driven.whole(second))
    assert (reported[topic].state, reported[topic].offset, reported[second].state) == (
        "stopped",
        at - 1,
        "ok",
    )
    assert (driven.rows(topic), driven.rows(second)) == (before, rows_of(other))
    state = driven.folder.read_progress(ApplyUnit("p", topic))[1]
    assert state is not None
    assert "ALTER TABLE changed" in str(state.stopped)


def test_a_truncate_between_rows_of_one_batch_keeps_its_place(driven: Driven) -> None:
    bank = source()
    topic = driven.unit(bank)
    driven.write(topic, *bank.history(random.Random(11), 50, keys=10), bank.truncate())
    driven.write(topic, *bank.history(random.Random(12), 20, keys=3), bank.truncate(), bank.truncate())
    driven.write(topic, bank.put(bank.row(3, None, 1)))
    driven.start()
    assert driven.batch(driven.whole(topic))[topic].state == "ok"
    assert driven.rows(topic) == rows_of(bank)
    assert len(driven.rows(topic)) == 1


def test_a_refused_row_is_held_until_its_key_has_one_that_fits(driven: Driven) -> None:
    bank = source()
    topic = driven.unit(bank)
    driven.folder.refuses = lambda row: len(str(row[2])) > 20
    driven.start()
    driven.write(topic, bank.put({**bank.row(5, None, 1), "owner": "x" * 30}), bank.put(bank.row(6, None, 1)))
    report = driven.batch(driven.whole(topic))[topic]
    assert (report.state, report.held) == ("ok", 1)
    driven.write(topic, bank.put({**bank.row(5, None, 2), "owner": "x" * 31}), bank.put(bank.row(7, None, 2)))
    report = driven.batch((topic, 3, 4))[topic]
    assert (report.state, report.held) == ("ok", 1)
    assert [row[0] for row in driven.rows(topic)] == [6, 7]
    entries = driven.folder.read_quarantine(ApplyUnit("p", topic))
    assert [entry.offset for entry in entries] == [1, 3]
    assert entries[0].error == entries[1].error, "the target was asked for the last row too"
    driven.write(topic, bank.put(bank.row(5, None, 3)))
    assert driven.batch((topic, 5, 5))[topic].state == "ok"
    assert [row[0] for row in driven.rows(topic)] == [5, 6, 7]
    last = driven.folder.of(ApplyUnit("p", topic)).last()
    assert (last.held, [entry.offset for entry, _ in last.closed]) == ((), [1, 3, 5])


def test_a_refused_key_move_deletes_and_a_delete_settles_in_one_commit(driven: Driven) -> None:
    """As in lanes: of the move the insert alone is held; the delete of a held key ends that."""
    bank = source()
    topic = driven.unit(bank)
    driven.folder.refuses = lambda row: len(str(row[2])) > 20
    driven.start()
    driven.write(topic, bank.put(bank.row(5, None, 1)), bank.put(bank.row(6, None, 1)))
    driven.write(topic, bank.move(5, {**bank.row(7, None, 2), "owner": "x" * 30}))
    report = driven.batch(driven.whole(topic))[topic]
    assert (report.state, report.held) == ("ok", 1)
    unit = ApplyUnit("p", topic)
    assert [row[0] for row in driven.rows(topic)] == [6]
    assert [(entry.offset, entry.part, entry.key) for entry in driven.folder.read_quarantine(unit)] == [
        (3, 1, "[7]")
    ]
    driven.write(topic, bank.move(7, bank.row(8, None, 3)), bank.put(bank.row(7, None, 4)))
    commits = driven.folder.commits
    report = driven.batch((topic, 4, 5))[topic]
    assert (report.state, report.held, driven.folder.commits) == ("ok", 0, commits + 1)
    assert driven.rows(topic) == rows_of(bank)
    last = driven.folder.of(unit).last()
    assert ([entry.offset for entry, _ in last.closed], last.held) == ([3], ())


def held(driven: Driven) -> tuple[FakeSource, str]:
    """A unit with a refused row of key 5, and the delete of it behind it; row 6 is there."""
    bank = source()
    topic = driven.unit(bank)
    driven.folder.refuses = lambda row: len(str(row[2])) > 20
    driven.start()
    driven.write(topic, bank.put({**bank.row(5, None, 1), "owner": "x" * 30}), bank.put(bank.row(6, None, 1)))
    driven.write(topic, bank.put({**bank.row(5, None, 2), "owner": "y" * 30}))
    assert driven.batch(driven.whole(topic))[topic].held == 2
    return bank, topic


@pytest.mark.parametrize("how", ["retry", "skip"])
def test_what_is_held_is_resolved_by_the_command_line_in_one_commit(driven: Driven, how: str) -> None:
    bank, topic = held(driven)
    driven.folder.refuses = lambda _row: False
    commits = driven.folder.commits
    outcome = resolve_quarantine(driven.config, how, EntrySelection())
    assert (outcome.complete, driven.folder.commits) == (True, commits + 1)
    last = driven.folder.of(ApplyUnit("p", topic)).last()
    assert ([entry.offset for entry, _ in last.closed], last.held) == ([1, 3], ())
    assert {why for _, why in last.closed} == {f"by rowlock quarantine {how}"}
    assert driven.rows(topic) == [row for row in rows_of(bank) if how == "retry" or row[0] == 6]
    driven.write(topic, bank.put(bank.row(8, None, 1)))
    assert driven.batch((topic, 4, 4))[topic].state == "fenced", "the command owned the unit"


def test_a_row_that_is_refused_again_stays_held(driven: Driven) -> None:
    _, topic = held(driven)
    outcome = resolve_quarantine(driven.config, "retry", EntrySelection())
    assert (outcome.complete, len(driven.folder.read_quarantine(ApplyUnit("p", topic)))) == (False, 2)


def test_a_command_that_is_fenced_every_time_resolves_nothing(driven: Driven) -> None:
    _, topic = held(driven)
    driven.folder.paused = lambda: driven.take(topic)
    with pytest.raises(CommandError, match="another worker now owns"):
        resolve_quarantine(driven.config, "skip", EntrySelection())
    assert len(driven.folder.read_quarantine(ApplyUnit("p", topic))) == 2


def test_rows_of_a_target_of_whole_batches_are_not_said_to_be_equal(driven: Driven) -> None:
    routed = resolve_route(driven.settings.routes, "s", "bank", "acct")
    assert routed is not None
    (result,) = verify_pairs(driven.config, [TablePair("p", "s", account_table(), "t", routed)], settle_s=0)
    assert "nothing was compared" in result.problem


def test_check_judges_its_tables_and_asks_it_for_no_rights(driven: Driven) -> None:
    routed = resolve_route(driven.settings.routes, "s", "bank", "acct")
    assert routed is not None
    flow = TableFlow("p", "s", account_table(), "t", routed)
    assert list(check._yield_target_findings(driven.config, [flow], {"s": [flow.table]}, [])) == []
    narrow = account_table()
    driven.folder.create_table(msgspec.structs.replace(narrow, columns=narrow.columns[:-1]))
    found = [
        each.finding for each in check._yield_target_findings(driven.config, [flow], {"s": [flow.table]}, [])
    ]
    assert [(each.level, each.place) for each in found] == [("error", "target table bank.acct")]
    assert "note" in found[0].message


@pytest.mark.parametrize("on_drop", ["drop", "stop"])
def test_check_asks_a_target_only_for_rights_that_the_pipeline_needs(
    driven: Driven, monkeypatch: pytest.MonkeyPatch, on_drop: str
) -> None:
    asked: list[Any] = []

    def find_missing_rights(tables: object, **kinds: object) -> list[Any]:
        asked.append((tables, kinds["drop"]))
        return []

    routed = resolve_route(driven.settings.routes, "s", "bank", "acct")
    assert routed is not None
    flow = TableFlow("p", "s", account_table(), "t", routed)
    options = driven.config.pipelines["p"].model_copy(update={"on_drop": on_drop})
    config = driven.config.model_copy(update={"pipelines": {"p": options}})
    monkeypatch.setattr(check, "find_target_kind", lambda _: SimpleNamespace(batches=False, events=False))
    monkeypatch.setattr(check, "check_session", lambda *_: [])
    monkeypatch.setattr(driven.folder, "find_missing_rights", find_missing_rights, raising=False)
    list(check._yield_target_findings(config, [flow], {"s": [flow.table]}, []))
    assert asked == [([flow.place[1:]], {flow.place[1:]} if on_drop == "drop" else set())]


def test_a_driver_that_is_fenced_in_the_middle_of_a_batch_writes_nothing(driven: Driven) -> None:
    bank, other = source(), source("other")
    topic, second = driven.unit(bank), driven.unit(other)
    driven.start()
    driven.batch(driven.whole(topic), driven.whole(second))
    driven.write(topic, bank.put(bank.row(1, None, 1)))
    driven.write(second, other.put(other.row(1, None, 1)))

    def successor() -> None:
        driven.folder.paused = lambda: None
        old = driven.epochs[topic]
        driven.take(topic)
        driven.epochs[topic] = old

    driven.folder.paused = successor
    reported = driven.batch((topic, 1, 1), (second, 1, 1))
    assert (reported[topic].state, reported[second].state) == ("fenced", "ok")
    assert (driven.offset(topic), driven.rows(topic), len(driven.rows(second))) == (0, [], 1)


@pytest.mark.parametrize(
    ("error", "state"), [(TransientError("no broker"), "behind"), (UnitStoppedError("retention"), "stopped")]
)
def test_a_topic_that_cannot_be_read_is_trouble_of_its_unit_alone(
    driven: Driven, error: Exception, state: str
) -> None:
    broken, fine = driven.unit(source("broken")), driven.unit(source("fine"))
    driven.start()
    driven.trouble[broken] = error
    reported = driven.batch(driven.whole(broken), driven.whole(fine))
    assert (reported[broken].state, reported[fine].state) == (state, "ok")


def test_the_pipeline_has_one_lane_and_a_pace(tmp_path: Path) -> None:
    usual = PipelineSettings.from_config(load_config(configured(tmp_path)), "p")
    assert (usual.batches, usual.config.lanes, usual.commit_every) == (True, 1, 10.0)
    paced = PipelineSettings.from_config(
        load_config(configured(tmp_path, commit_every=0.5, max_gather=7)), "p"
    )
    assert (paced.commit_every, paced.limits.max_gather) == (0.5, 7)
