"""A reload through the owner's machine, REST, the command line and the apply process's shells: who is
answered what, and when."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from consumer.process.instructions import PipelineShells
from consumer.slots.pipeline import PipelineSettings
from coordinator.control.events import Elected, Lost
from coordinator.core import agent
from coordinator.core.agent import ConfigTaken, FileRead
from coordinator.core.agent_state import FollowedConfiguration
from coordinator.core.leader.state import Inventory, LeaderCommand, Reload
from coordinator.core.messages import ConfigVersion, FileAnswer
from coordinator.core.records import ConfigRecord
from coordinator.server.config import ServerConfig
from coordinator.server.coordinator import Coordinator
from coordinator.server.operators.api import CommandRefusedError, LeaderView, NotLeaderError
from coordinator.server.operators.configuration import ConfigurationRefusedError, FoundConfiguration
from coordinator.server.requests import CommandRequested, InventoryRead, PendingAnswer
from rowlock.inspect.planned.plan import (
    AGAIN,
    NEW,
    NO_MORE,
    StoredFlow,
    StoredSource,
    StoredTopic,
    build_run_plan,
    plan_lines,
)
from schemas.config.model import Config, KafkaConfig, load_config
from schemas.findings import START_OVER
from schemas.problems import Problem
from tests.kits.coordination import inventory, until
from tests.kits.coordinator_server import PlayedCoordinator

PARTS = {"pipeline/p": "p1", "source/s": "s1"}
OLD: Inventory = replace(inventory(3), digest="old", parts=PARTS)
RELOAD = Reload("new", {**PARTS, "pipeline/p": "p2"}, frozenset({"pipeline/p"}))


@dataclass
class ReloadWorld(PlayedCoordinator):
    """`holds`: what an agent's file holds, and what is wrong with it."""

    configured: list[str] = field(default_factory=list)
    holds: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def adopt_config(self, digest: str) -> None:
        self.configured.append(digest)

    def begin(self, *names: str) -> ReloadWorld:
        self.report_event(Elected(10, dict(self.records)), InventoryRead(10, OLD))
        for name in names:
            self.holds[name] = ("old", ())
            self.join(name)
        self.run(3)
        return self

    def join(self, name: str) -> None:
        super().join(name)
        self.agents[name][1].configuration = FollowedConfiguration(ConfigVersion("old"))

    def _agent(self, name: str, event: agent.AgentEvent) -> None:
        known = self.agents[name][1].configuration
        before = (known.asked, known.attempt) if known is not None else None
        super()._agent(name, event)
        if known is None or before is None:
            return
        if known.asked != before[0]:
            super()._agent(name, FileRead(FileAnswer(known.asked, *self.holds[name])))
        if known.attempt is not None and known.attempt is not before[1]:
            asked = known.attempt.version
            super()._agent(name, ConfigTaken(asked if self.holds[name][0] == asked.digest else None))

    def ask(self) -> PendingAnswer[None]:
        answer: PendingAnswer[None] = PendingAnswer()
        self.report_event(CommandRequested(RELOAD, answer, "me"))
        return answer

    def notified(self, what: str) -> list[Mapping[str, object]]:
        return [row.about for row in self.machine.journal.list_events_after(0, 1000) if row.what == what]


def test_a_reload_is_answered_once_it_is_durable_and_taken_before() -> None:
    played = ReloadWorld().begin("a", "b")
    played.holds = dict.fromkeys(played.holds, ("new", ()))
    played.commits = False
    answer = played.ask()
    assert not answer.filled
    played.run(3)
    assert played.configured == ["new"]
    assert not answer.filled, "a later owner would not know of it"
    played.commits = True
    played.commit()
    played.settle()
    assert answer.filled
    assert answer.refused is None
    (about,) = played.notified("command accepted")
    assert about == {"command": "reload", "by": "me", "digest": "new"}
    (came,) = played.notified("configuration in force")
    assert (came["digest"], came["was"], came["changed"]) == ("new", "old", ["pipeline/p"])


def test_what_one_agent_has_against_it_is_the_answer() -> None:
    played = ReloadWorld().begin("a", "b")
    played.holds = {"a": ("new", ()), "b": ("", ("c.yaml:3: wrong", "c.yaml:4: wrong as well"))}
    answer = played.ask()
    second = played.ask()
    assert second.refused == "another reload is under way: ask again when it has ended"
    played.run(3)
    assert answer.refused == "agent b: c.yaml:3: wrong\nagent b: c.yaml:4: wrong as well"
    assert played.configured == []
    assert [about["why"] for about in played.notified("command refused")] == [second.refused, answer.refused]
    played.holds["b"] = ("new", ())
    third = played.ask()
    played.run(3)
    assert third.filled
    assert third.refused is None


def test_a_term_that_ends_leaves_nobody_waiting() -> None:
    played = ReloadWorld().begin("a")
    played.holds["a"] = ("", ())
    del played.agents["a"]
    answer = played.ask()
    assert not answer.filled
    played.report_event(Lost(10, "fenced"))
    with pytest.raises(NotLeaderError):
        answer.wait_for_value(0.1)
    assert played.configured == []


class FakeConfiguration:
    """`refuses`: what is wrong with the file."""

    def __init__(self) -> None:
        self.refuses: tuple[str, ...] = ()
        self.caught_up: list[str] = []

    def read_file(self) -> FoundConfiguration:
        if self.refuses:
            raise ConfigurationRefusedError(self.refuses)
        return FoundConfiguration("new", PARTS, frozenset({"source/s"}))

    def read_checked_file(self) -> FoundConfiguration:
        return self.read_file()

    def adopt_config(self, digest: str) -> None: ...

    def catch_up(self, digest: str) -> None:
        self.caught_up.append(digest)


def _coordinator(configuration: FakeConfiguration | None) -> Coordinator:
    kafka, config = KafkaConfig(bootstrap="127.0.0.1:1"), ServerConfig("c", "127.0.0.1:0")
    return Coordinator(config, kafka, lambda: inventory(0), lambda *_: None, configuration)


def test_only_the_leader_reads_its_file_and_a_bad_one_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration, given = FakeConfiguration(), list[LeaderCommand]()
    coordinator = _coordinator(configuration)
    with pytest.raises(NotLeaderError):
        coordinator.reload_config()
    leader = LeaderView(7, "c", "", "", am_i=True)
    monkeypatch.setattr(coordinator, "get_leader", lambda: leader)
    monkeypatch.setattr(coordinator, "execute_command", lambda command, *_, **__: given.append(command))
    assert coordinator.reload_config(dry_run=True).digest == "new"
    assert given == []
    assert coordinator.reload_config(by="me").changed == {"source/s"}
    assert given == [Reload("new", PARTS, frozenset({"source/s"}))]
    configuration.refuses = ("c.yaml:3: wrong", "c.yaml:4: wrong")
    with pytest.raises(CommandRefusedError) as refused:
        coordinator.reload_config(by="me")
    assert refused.value.problems == (Problem("c.yaml:3: wrong"), Problem("c.yaml:4: wrong"))
    (event,) = coordinator.list_events(0, 10)
    assert (event.what, event.about["command"], event.about["by"]) == ("command refused", "reload", "me")
    without = _coordinator(None)
    monkeypatch.setattr(without, "get_leader", lambda: leader)
    with pytest.raises(CommandRefusedError, match="restart it"):
        without.reload_config()


def test_an_elected_coordinator_catches_up_once_before_its_first_catalogue() -> None:
    configuration = FakeConfiguration()
    coordinator = _coordinator(configuration)
    coordinator._on_log_event(Elected(7, {"configuration": ConfigRecord("theirs", 3, ())}))
    for _ in range(2):
        assert coordinator._adopt_stored_config(lambda: OLD) is OLD
    assert configuration.caught_up == ["theirs"]
    coordinator._on_log_event(Elected(9, {}))
    coordinator._adopt_stored_config(lambda: OLD)
    assert configuration.caught_up == ["theirs"]


# the apply process's shells


class FakeShell:
    def __init__(self, pipeline: PipelineSettings) -> None:
        self.pipeline, self.calls = pipeline, list[str]()
        self.without_units = threading.Event()

    def start(self) -> None:
        self.calls.append("start")

    def close(self, *, once_without_units: bool = False) -> None:
        if once_without_units:
            assert self.without_units.wait(60)
        self.calls.append("closed")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    raw = {
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "sources": {"s": {"type": "mariadb", "host": "h", "user": "u", "password": "p", "tables": ["b.*"]}},
        "targets": {"t": {"type": "postgres", "host": "h", "port": 1, "user": "u", "password": "p",
         "database": "d"}},
        "pipelines": {name: {"sources": ["s"], "target": "t"} for name in "pq"},
    }  # fmt: skip
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump(raw))
    return load_config(file)


def test_a_changed_pipeline_has_a_shell_of_its_own_beside_the_one_with_its_units(config: Config) -> None:
    made: list[FakeShell] = []

    def make(pipeline: PipelineSettings) -> Any:
        made.append(FakeShell(pipeline))
        return made[-1]

    shells = PipelineShells(config, make)
    for name in "pq":
        shells.assign_shell(f"apply/{name}/t", name)
    old_p, q = made
    pipelines = {**config.pipelines, "p": config.pipelines["p"].model_copy(update={"lanes": 2})}
    assert shells.apply_configuration(config.model_copy(update={"pipelines": pipelines})) == {"p"}
    assert shells.get_shell("apply/p/t", "p") is old_p, "its unit is there until it has ended"
    assert shells.get_shell("apply/q/t", "q") is q
    assert shells.assign_shell("apply/p/u", "p") is made[2]
    new_p = made[2]
    assert new_p.calls == ["start"]
    assert (old_p.pipeline.config.lanes, new_p.pipeline.config.lanes) == (4, 2)
    assert old_p.pipeline.state_dir != new_p.pipeline.state_dir
    assert shells.assign_shell("apply/p/t", "p") is new_p, "once it has ended"
    old_p.without_units.set()
    until(lambda: "closed" in old_p.calls and not shells._before, what="the old shell closed")
    missing = config.model_copy(update={"pipelines": {"q": config.pipelines["q"]}})
    assert shells.apply_configuration(missing) == {"p"}
    assert not shells.is_known("apply/p/x", "p")
    assert shells.is_known("apply/p/t", "p"), "it can still be told to stop"
    new_p.without_units.set()
    shells.close()
    assert "closed" in q.calls


# the plan of what is stored

SOURCE = StoredSource(
    "s",
    {"b.old": "x.s.b.old", "b.new": "x.s.b.new", "b.back": "x.s.b.back", "b.again": "x.s.b.again"},
    frozenset({"b.old", "b.again", "b.out", "b.long"}),
    {"b.again": "deselected", "b.long": "deselected", "b.old": "definition"},
    frozenset({"x.s.b.old", "x.s.b.back"}),
    {"b.new": (1000, 2**21), "b.back": (5, 100)},
)


def flow(table: str, there: tuple[str, ...] | None, **more: Any) -> StoredFlow:
    return StoredFlow(
        "p",
        "s",
        table,
        "t",
        f"public.{table}",
        ("id", "v", "w"),
        there,
        **{"create": True, "layout": (4, "r2"), **more},
    )


def test_tables_that_are_new_back_again_or_no_more() -> None:
    found = build_run_plan([SOURCE], [])
    assert {(t.table, t.what, t.creates_topic, t.rows) for t in found.tables} == {
        ("b.new", NEW, True, 1000),
        ("b.back", NEW, False, 5),
        ("b.again", AGAIN, False, None),
        ("b.out", NO_MORE, False, None),
    }
    assert found.as_dict()["copies"] == {"tables": 2, "rows": 1005, "bytes": 2**21 + 100}
    never = build_run_plan([replace(SOURCE, copies=False)], [])
    assert never.copies == ()


def test_a_column_that_is_written_under_another_name_is_in_the_lines() -> None:
    found = build_run_plan(
        [], [flow("acct", ("id", "v", "v_2", "w"), names={"v": "v_2"}), flow("other", ("id", "v", "w"))]
    )
    assert plan_lines(found)[:2] == [
        "nothing changes in what is stored",
        (
            "target t: public.acct: the column v of s:acct is written to the column v_2 until the source "
            "renames or drops it (pipeline p)"
        ),
    ]
    assert "renames" not in found.as_dict()
    changed = build_run_plan([], [flow("acct", ("id", "v", "w"), renamed="public.acct: changed")])
    assert plan_lines(changed)[0] == "target t: public.acct: changed (pipeline p)"


def test_target_tables_columns_and_layouts() -> None:
    flows = [
        flow("made", None),
        flow("not", None, create=False),
        flow("narrow", ("id", "v")),
        flow("fine", ("id", "v", "w", "more"), stored=(4, "r2")),
        flow("lanes", ("id", "v", "w"), stored=(2, "r2")),
        flow("both", ("id", "v", "w"), stored=(2, "r1")),
    ]
    found = build_run_plan([], flows, {"refused": ["c.yaml:3: wrong"]})
    assert [(t.table, t.creates, t.columns) for t in found.targets] == [
        ("public.made", True, ("id", "v", "w")),
        ("public.narrow", False, ("w",)),
    ]
    assert [(each.table, each.why) for each in found.layouts] == [
        ("s:lanes", "lanes 2 → 4"),
        ("s:both", "lanes 2 → 4 and routes"),
    ]
    lines = plan_lines(found)
    assert lines[-2:] == ["the coordinator that leads would refuse its file:", "  c.yaml:3: wrong"]
    assert json.dumps(found.as_dict())


def test_a_topic_whose_rows_stay_as_they_were_and_one_that_would_stop() -> None:
    names = "b", "o"
    flows = [
        flow("same", (), topic=StoredTopic(names)),
        flow("filter", (), topic=StoredTopic(names, ("masks", "where"))),
        flow("log", (), topic=StoredTopic(names, ("where",), debezium=True)),
        flow("form", (), topic=StoredTopic(names, ("where",), ("format was plain, now rowlock",))),
    ]
    flows = [replace(each, expected=(), layout=(1, "r"), stored=(1, "r")) for each in flows]
    found = build_run_plan([], flows)
    assert [(each.topic, each.stops, each.outdated) for each in found.topics] == [
        ("public.filter", False, ("masks", "where")),
        ("public.log", False, ("where",)),
        ("public.form", True, ()),
    ]
    one, two, three, _ = plan_lines(found)
    assert one.startswith(
        "target t: topic public.filter: s:filter of pipeline p: `masks`, `where` of the route"
    )
    assert ": rowlock copy b.o, which" in one
    assert two.endswith(f": {START_OVER} with another topic")
    assert "pipeline p will stop: format was plain, now rowlock: set the route back, or start over" in three
    assert json.dumps(found.as_dict())


def test_a_plan_for_people() -> None:
    asked = {
        "changes": ["sources.s.tables: [b.old] → [b.*]"],
        "changed": ["source/s"],
        "gone": ["pipeline/q"],
    }
    lines = plan_lines(build_run_plan([SOURCE], [flow("made", None)], asked))
    assert lines == [
        "source s: b.again is selected again; it stays as it is until it is copied: rowlock copy b.again",
        (
            "source s: b.back is captured newly into the topic x.s.b.back that is there; about "
            "5 rows (100 bytes) are copied"
        ),
        "source s: b.new is captured newly, topic x.s.b.new is made; about 1,000 rows (2.0 MiB) are copied",
        (
            "source s: b.out is no longer captured; its topic and the target's rows stay; selected "
            "again later, it has to be copied"
        ),
        "target t: public.made is made with columns id, v, w (pipeline p)",
        "copies: 2 tables, about 1,005 rows, 2.0 MiB",
        "its own file, to the coordinator that leads:",
        "  sources.s.tables: [b.old] → [b.*]",
        "  placed again: source/s, pipeline/q (removed)",
    ]
    assert plan_lines(build_run_plan([], [])) == [
        "nothing changes in what is stored",
        "no coordinator answers: the next start reads the file as it is then",
    ]
