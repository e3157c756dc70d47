"""The active configuration, the agents that are given units, and what is placed anew: the owner's core and
the agent's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.core.agent import AgentTick, ConfigTaken, FileRead, ReadFile, TakeConfig
from coordinator.core.agent_state import ConfigAttempt, FollowedConfiguration
from coordinator.core.leader import steps
from coordinator.core.leader.configuration import (
    accepts_units,
    get_config_part,
    get_open_question,
    has_active_config,
)
from coordinator.core.leader.state import (
    Alarm,
    Confirmed,
    Inventory,
    LeaderDecision,
    Move,
    Refused,
    Reload,
    ReloadEnded,
    Tick,
)
from coordinator.core.messages import (
    ConfigVersion,
    Dispatch,
    FileAnswer,
    Header,
    Heartbeat,
    HeartbeatResponse,
    Sync,
    UnitStatus,
)
from coordinator.core.replication_table import SetState
from coordinator.core.schedulers import InventoryUnit, UnitKind
from schemas.problems import Problem
from schemas.units import UnitPhase
from tests.kits.agent_core import EPOCH, LEASE, REV, Driver
from tests.kits.leader_core import CONFIG, Cluster

CAPTURE = InventoryUnit("capture/s", UnitKind.CAPTURE, "s")
P, Q = (InventoryUnit(f"apply/{name}/t", UnitKind.APPLY, "s", name, "1") for name in "pq")
PARTS = {"source/s": "s1", "pipeline/p": "p1", "pipeline/q": "q1"}
OLD = Inventory((CAPTURE, P, Q), {"p": ("s",), "q": ("s",)}, "old", PARTS)
NEW_PARTS = {**PARTS, "pipeline/p": "p2"}
NEW = replace(OLD, digest="new", parts=NEW_PARTS)
RELOAD = Reload("new", NEW_PARTS, frozenset({"pipeline/p"}))


def running(held: str = "old", *more: str) -> Cluster:
    """All three units replicate on a, which has the configuration `held`; agents `more` are there and have
    it, too."""
    cluster = Cluster()
    cluster.do(OLD)
    cluster.join("a")
    cluster.beat("a", config=ConfigVersion(held))
    if held == "old":
        for phase in (UnitPhase.PREPARED, UnitPhase.REPLICATING):
            cluster.do(Tick())
            statuses(cluster, phase)
        assert {s.state for s in cluster.state.sets.by_unit.values()} == {SetState.REPLICATING}
    for name in more:
        cluster.join(name)
        cluster.beat(name, config=ConfigVersion("old"))
    cluster.sent.clear()
    return cluster


def statuses(cluster: Cluster, phase: UnitPhase, config: ConfigVersion | None = None) -> None:
    found = [
        UnitStatus(unit, replica.assignment, phase)
        for unit, current in cluster.state.sets.by_unit.items()
        for replica in current.replicas
        if replica.agent == "a"
    ]
    cluster.beat("a", *found, config=config or ConfigVersion("old"))


def output(
    cluster: Cluster, agent: str, digest: str, *problems: str, asked: int | None = None
) -> list[LeaderDecision]:
    """The agent goes on as it is, and answers what it was asked."""
    reloading = cluster.state.configuration.reloading
    number = asked if asked is not None else reloading.number if reloading else 0
    found = [
        UnitStatus(unit, replica.assignment, UnitPhase.REPLICATING)
        for unit, current in cluster.state.sets.by_unit.items()
        for replica in current.replicas
        if replica.agent == agent
    ]
    return cluster.beat(
        agent, *found, config=ConfigVersion("old"), file=FileAnswer(number, digest, tuple(problems))
    )


def ended(effects: list[LeaderDecision]) -> list[tuple[Problem, ...]]:
    return [effect.refused for effect in effects if isinstance(effect, ReloadEnded)]


def assignments(cluster: Cluster) -> dict[str, int]:
    return {unit: current.replicas[0].assignment for unit, current in cluster.state.sets.by_unit.items()}


def test_the_part_of_a_unit() -> None:
    assert [get_config_part(unit) for unit in (CAPTURE, P)] == ["source/s", "pipeline/p"]


def test_a_reload_waits_for_every_agent_and_then_places_only_what_changes_anew() -> None:
    cluster = running("old", "b")
    before = assignments(cluster)
    assert ended(cluster.do(RELOAD)) == []
    output(cluster, "a", "new", asked=0)  # an old answer is none
    assert [m.ask for a, m in cluster.sent if isinstance(m, HeartbeatResponse) and a == "a"] == [
        get_open_question(cluster.state, cluster.state.members.by_name["b"])
    ]
    assert ended(output(cluster, "a", "new")) == []
    assert cluster.state.configuration.record is not None
    assert cluster.state.configuration.record.digest == "old"
    output(cluster, "b", "new")
    assert ended(cluster.do(Tick())) == [()]
    assert cluster.state.configuration.record.digest == "new"
    cluster.do(OLD)  # read before, it comes late
    assert cluster.state.history.dropped["catalogue of another configuration"] == 1
    cluster.do(NEW)
    cluster.do(Tick())
    assert cluster.dispatched() == [("a", "apply/p/t", "remove")]
    assert {u: a for u, a in assignments(cluster).items() if u != P.unit} == {
        u: a for u, a in before.items() if u != P.unit
    }
    notified = [what for what, _ in cluster.state.history.entries]
    assert notified.count("configuration in force") == 1


def committed(cluster: Cluster) -> ConfigVersion:
    """The reload is in force, and what it changes has been told to stop."""
    cluster.do(RELOAD)
    for name in sorted(cluster.state.members.by_name):
        output(cluster, name, "new")
    cluster.do(Tick())
    cluster.do(NEW)
    cluster.do(Tick())
    record = cluster.state.configuration.record
    assert record is not None
    return ConfigVersion(record.digest, record.revision)


def test_a_unit_is_given_to_an_agent_only_once_it_has_what_is_in_force() -> None:
    cluster = running()
    before = assignments(cluster)
    new = committed(cluster)
    stopped = UnitStatus(P.unit, before[P.unit], UnitPhase.STOPPED)
    others = [UnitStatus(u, n, UnitPhase.REPLICATING) for u, n in before.items() if u != P.unit]
    cluster.beat("a", stopped, *others, config=ConfigVersion("old"))
    cluster.do(Tick())
    assert ("a", P.unit, "prepare") not in cluster.dispatched()
    cluster.beat("a", *others, config=ConfigVersion("new", new.revision - 1))
    cluster.do(Tick())
    assert cluster.dispatched() == [], "the digest alone does not tell a new password"
    cluster.beat("a", *others, config=new)
    cluster.do(Tick())
    assert cluster.dispatched() == [("a", P.unit, "prepare")]
    assert assignments(cluster)[P.unit] > new.revision > before[P.unit]
    story = [about for what, about in cluster.state.history.entries if what == "unit stopped"]
    assert story[-1]["why"] == "its configuration has changed"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            ("", "c.yaml:3: sources.s.port: 'x' does not fit; a whole number"),
            "agent b: c.yaml:3: sources.s.port",
        ),
        (("other",), "agent b: its file holds another configuration (other) than the coordinator's (new)"),
    ],
)
def test_one_agents_file_is_enough_for_a_refusal(answer: tuple[str, ...], why: str) -> None:
    cluster = running("old", "b")
    before = assignments(cluster), cluster.state.configuration.record
    cluster.do(RELOAD)
    output(cluster, "a", "new")
    output(cluster, "b", *answer)
    ((problem,),) = ended(cluster.do(Tick()))
    assert str(problem).startswith(why)
    cluster.do(OLD)
    cluster.do(Tick())
    assert (assignments(cluster), cluster.state.configuration.record) == before
    assert cluster.state.configuration.reloading is None
    assert [m for _, m in cluster.sent if isinstance(m, Dispatch)] == []


def test_an_agent_that_does_not_answer_is_a_refusal_after_a_while_and_one_that_is_gone_is_none() -> None:
    cluster = running("old", "b")
    cluster.do(RELOAD)
    output(cluster, "a", "new")
    assert ended(cluster.do(Tick())) == []
    cluster.now += CONFIG.silence - 0.5
    output(cluster, "a", "new")
    cluster.now += 1.0
    assert ended(cluster.do(Tick())) == [()], "b is gone"
    cluster = running("old", "b")
    cluster.do(RELOAD)
    output(cluster, "a", "new")
    ends: list[tuple[Problem, ...]] = []
    while not ends:
        cluster.now += 1.0
        for name in "ab":
            output(cluster, name, "new", asked=None if name == "a" else 0)
        ends = ended(cluster.do(Tick()))
    assert [(each.what.partition(" what")[0], each.remedy) for each in ends[0]] == [
        ("agent b has not reported within 30 s", "see `rowlock agents list`")
    ]


def test_where_nobody_is_to_be_asked_it_ends_at_once_and_a_second_one_is_refused_meanwhile() -> None:
    cluster = Cluster()
    cluster.do(OLD)
    assert ended(cluster.do(RELOAD)) == [()]
    cluster = running()
    cluster.do(RELOAD)
    assert [e.problem for e in cluster.do(RELOAD) if isinstance(e, Refused)] == [
        Problem("another reload is under way", "ask again when it has ended")
    ]


def test_an_agent_with_another_configuration_keeps_what_it_has_and_gets_nothing() -> None:
    cluster = running("another")
    member = cluster.state.members.by_name["a"]
    assert member.accepts
    assert not has_active_config(cluster.state, member)
    assert not accepts_units(cluster.state, member)
    cluster.do(Tick())
    assert cluster.dispatched() == []
    refusals = [e.problem for e in cluster.do(Move("capture/s", "a")) if isinstance(e, Refused)]
    assert refusals == [
        Problem("agent a does not have the active configuration", "see `rowlock agents list`")
    ]


def test_a_later_owner_knows_what_is_in_force_and_what_is_left_to_do() -> None:
    """The first owner dies when the reload is durable, before anything was stopped; the second one's file
    holds the same."""
    cluster = running()
    before = assignments(cluster)
    cluster.do(RELOAD)
    output(cluster, "a", "new")
    cluster.do(Tick())
    later = Cluster(rev=11, records=cluster.records)
    later.up(
        Sync, "a", sent=1.0, config=ConfigVersion("old"),
        running=tuple(UnitStatus(u, n, UnitPhase.REPLICATING) for u, n in before.items()),
    )  # fmt: skip
    later.do(NEW)
    later.do(Tick())
    assert later.dispatched() == [("a", P.unit, "remove")]


def test_an_owner_that_starts_with_another_file_puts_it_in_force_part_by_part() -> None:
    cluster = running()
    before = assignments(cluster)
    later = Cluster(rev=11, records=cluster.records)
    later.up(
        Sync, "a", sent=1.0, config=ConfigVersion("new"),
        running=tuple(UnitStatus(u, n, UnitPhase.REPLICATING) for u, n in before.items()),
    )  # fmt: skip
    later.do(NEW)
    record = later.state.configuration.record
    assert record is not None
    assert record.digest == "new"
    assert {part: since > max(before.values()) for part, _, since in record.parts} == {
        "source/s": False, "pipeline/p": True, "pipeline/q": False
    }  # fmt: skip
    later.do(Tick())
    assert later.dispatched() == [("a", P.unit, "remove")]


def test_an_owner_without_a_record_restarts_nothing() -> None:
    """An earlier release has written none."""
    cluster = running()
    records = {key: record for key, record in cluster.records.items() if key != "configuration"}
    before = assignments(cluster)
    later = Cluster(rev=11, records=records)
    later.up(
        Sync, "a", sent=1.0,
        running=tuple(UnitStatus(u, n, UnitPhase.REPLICATING) for u, n in before.items()),
    )  # fmt: skip
    later.do(NEW)
    later.do(Confirmed(later.now))
    later.do(Tick())
    assert later.dispatched() == []
    assert assignments(later) == before


def test_a_reload_before_the_first_catalogue_of_a_term_is_compared_with_what_was_in_force() -> None:
    """This coordinator's process started with the new file, so that nothing differs there; a catalogue of
    before comes late. (Found by the model.)"""
    cluster = running()
    before = assignments(cluster)
    later = Cluster(rev=11, records=cluster.records)
    assert ended(later.do(Reload("new", NEW_PARTS, frozenset()))) == [()]
    later.do(OLD)
    record = later.state.configuration.record
    assert record is not None
    assert record.digest == "new"
    assert [part for part, _, since in record.parts if since > max(before.values())] == ["pipeline/p"]


def test_a_reload_without_a_record_places_anew_what_it_changes() -> None:
    cluster = Cluster()
    cluster.do(RELOAD)
    assert (
        cluster.state.configuration.since["pipeline/p"] > 0 == cluster.state.configuration.since["pipeline/q"]
    )


def test_units_that_a_reload_takes_out_are_not_doubted() -> None:
    """Kafka lists their topics still; of a pipeline that is as it was the doubt stands."""
    cluster = running()
    cluster.do(RELOAD)
    output(cluster, "a", "new")
    cluster.do(Tick())
    cluster.do(replace(NEW, units=(CAPTURE, Q)))
    assert P.unit not in (cluster.state.plan.inventory or {})
    assert not [e for e in cluster.effects if isinstance(e, Alarm)]
    cluster.do(replace(NEW, units=(CAPTURE,)))
    assert [e.what for e in cluster.effects if isinstance(e, Alarm)] == ["topics are missing"]


# the agent


def agent(digest: str = "old") -> Driver:
    driver = Driver()
    driver.state.configuration = FollowedConfiguration(ConfigVersion(digest)) if digest else None
    driver.announce()
    return driver


def notified(driver: Driver, config: ConfigVersion | None, ask: int = 0) -> list[Any]:
    message = HeartbeatResponse(Header(REV, EPOCH), driver.now, LEASE, 1.0, (), False, config, ask)
    return driver.get(message)


def beats(driver: Driver, out: list[Any]) -> list[Heartbeat]:
    return [each for each in driver.sent(out) if isinstance(each, Heartbeat)]


def test_an_agent_takes_what_is_in_force_and_says_so_at_once() -> None:
    driver, new = agent(), ConfigVersion("new", 9)
    assert notified(driver, ConfigVersion("old")) == []
    assert notified(driver, new) == [TakeConfig(new)]
    assert notified(driver, new) == [], "it is at it"
    (beat,) = beats(driver, driver.do(ConfigTaken(new)))
    assert beat.config == new
    assert notified(driver, new) == []
    assert notified(driver, ConfigVersion("new", 10)) == [TakeConfig(ConfigVersion("new", 10))], (
        "a new password"
    )


def test_an_agent_whose_file_lags_looks_again() -> None:
    driver, new = agent(), ConfigVersion("new", 9)
    assert notified(driver, new) == [TakeConfig(new)]
    assert driver.do(ConfigTaken(None)) == []
    assert driver.state.configuration == FollowedConfiguration(
        ConfigVersion("old"), ConfigAttempt(new, driver.now + 5.0)
    )
    driver.now += 4.9
    assert notified(driver, new) == []
    driver.now += 0.2
    assert notified(driver, new) == [TakeConfig(new)]
    assert notified(driver, ConfigVersion("old")) == [], "a later owner has another in force"
    assert notified(driver, new) == [TakeConfig(new)], "and what is in force after that is no repetition"


def test_an_agent_answers_each_question_once_and_repeats_the_answer() -> None:
    driver = agent()
    assert notified(driver, ConfigVersion("old"), 5) == [ReadFile(5)]
    assert notified(driver, ConfigVersion("old"), 5) == []
    answer = FileAnswer(5, "new")
    assert beats(driver, driver.do(AgentTick()))
    driver.now += 0.1
    (beat,) = beats(driver, driver.do(FileRead(answer)))
    assert (beat.file, beat.config) == (answer, ConfigVersion("old"))
    assert notified(driver, ConfigVersion("old"), 7) == [ReadFile(7)]


def test_an_agent_that_does_not_say_what_it_has_is_not_concerned() -> None:
    assert notified(agent(""), ConfigVersion("new", 3), 5) == []


def test_the_floor_holds_for_what_was_in_force() -> None:
    """A number of the record counts as given, should the counter's record have been lost."""
    cluster = running()
    committed(cluster)
    record = cluster.records["configuration"]
    state, _ = steps.begin_leader_term("o", 12, {"configuration": record}, CONFIG, 0.0)
    assert state.numbers.counter >= max(since for _, _, since in record.parts)  # type: ignore[union-attr]
