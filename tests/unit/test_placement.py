"""What `status` knows of a coordinator: who leads, by the control topic, and what runs, by its REST."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordinator.control.codec import Candidate, Claim, Resigned
from coordinator.control.fold import ControlFold
from rowlock.coordinator import control_view, leader_client
from rowlock.coordinator.leader_client import FoundLeader, LeaderClient
from rowlock.errors import CommandError, KafkaUnreachableError, NoLeaderError, NoListenerError
from rowlock.inspect import placement
from rowlock.inspect.observed.versions import ProcessVersion, format_version_lines
from rowlock.inspect.placement import START_AGAIN, LeaderAnswers, Placement, PlacementReader
from schemas.config.model import Config, CoordinationConfig, load_config

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources:
  b1: {type: mariadb, host: 127.0.0.1, port: 1, user: u, password: p, tables: [bank.*]}
targets: {}
pipelines: {}
"""
ROWS = LeaderAnswers([{"unit": "capture/b1", "health": "running"}])


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    return load_config(file)


@pytest.fixture
def read(config: Config, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Placement]:
    """Return what is known when the control topic says `fold` and the leader answers by `ask`."""

    def look(fold: ControlFold | Exception, ask: Any = None, *, missing: bool = False) -> Placement:
        class Topic:
            is_missing = missing

            def __init__(self, *_: object) -> None: ...

            def read_topic(self) -> ControlFold:
                if isinstance(fold, Exception):
                    raise fold
                return fold

            def close(self) -> None: ...

        monkeypatch.setattr(placement, "ControlView", Topic)
        return PlacementReader(
            config, ask or (lambda _: pytest.fail("nobody is to be asked"))
        ).read_placement()

    return look


def led(*more: Any) -> ControlFold:
    fold = ControlFold()
    for offset, message in enumerate([Claim(Candidate("c1", "h:1", "h:2"), "n"), *more]):
        fold.fold_message(offset, message)
    return fold


def raising(error: CommandError) -> Callable[[str], Any]:
    def ask(_: str) -> Any:
        raise error

    return ask


def test_the_leader_is_asked_where_its_claim_says(read: Callable[..., Placement]) -> None:
    asked: list[str] = []
    found = read(led(), lambda rest: asked.append(rest) or ROWS)
    assert asked == ["h:2"]
    assert (found.problem, found.known) == ("", True)
    assert found.units["capture/b1"]["health"] == "running"


@pytest.mark.parametrize("fold", [ControlFold(), led(Resigned(0))])
def test_where_nobody_leads_nothing_runs(read: Callable[..., Placement], fold: ControlFold) -> None:
    found = read(fold)
    assert found.known
    assert "nothing runs" in found.problem
    assert "start `rowlock run`, or `rowlock coordinator` and `rowlock agent`" in found.problem
    assert found.problem.endswith("; if it refuses to start, `rowlock check` shows the reason")


def test_a_kafka_without_a_control_topic_is_named(read: Callable[..., Placement]) -> None:
    """A run that still looks at an emptied Kafka asked for its last leader before, which did not lead."""
    found = read(ControlFold(), missing=True)
    assert found.problem == (
        "nothing runs: Kafka at 127.0.0.1:1 has no control topic rowlock.control, so nothing has run with it "
        f"yet or its data were removed: {START_AGAIN}"
    )


def test_a_leader_that_is_gone_from_one_that_cannot_be_reached(read: Callable[..., Placement]) -> None:
    missing = read(led(), raising(NoListenerError("h:2 does not answer", "start it")))
    assert missing.known
    assert missing.problem.startswith("nothing runs: coordinator c1, the last to lead, does not answer")
    assert missing.problem.endswith(START_AGAIN)
    for error in (
        NoLeaderError("refused.example:2 does not answer (timed out)"),
        CommandError("the token is refused"),
    ):
        unreached = read(led(), raising(error))
        assert not unreached.known
        assert str(error) in unreached.problem


@pytest.mark.parametrize("listens", [True, False])
def test_an_address_where_nothing_listens_has_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    monkeypatch.setattr(leader_client, "LEADER_REQUEST_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = CoordinationConfig(rest=f"127.0.0.1:{silent.getsockname()[1]}")
        if not listens:
            silent.close()
        with (
            LeaderClient(config, patience_s=0.0, find=FoundLeader) as leader,
            pytest.raises(NoLeaderError) as error,
        ):
            leader.get("/v1/leader")
    assert isinstance(error.value, NoListenerError) is not listens


def test_a_command_waits_for_no_election_while_kafka_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wait for a coordinator that starts is a minute and more on a busy machine."""
    monkeypatch.setattr(leader_client, "scale_timeout", lambda _: 1e9)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"127.0.0.1:{silent.getsockname()[1]}"
    problem = "Kafka at h:1 does not answer"
    answers = [FoundLeader(kafka_problem=problem), FoundLeader(heard=True, kafka_problem=problem)]
    with (
        LeaderClient(CoordinationConfig(rest=at), find=answers.pop) as leader,
        pytest.raises(NoLeaderError, match=f"{at} does not answer .*, and {problem}"),
    ):
        leader.get("/v1/leader")
    assert answers == [], "an election that a coordinator reports is waited for"


def test_the_search_for_the_leader_ends_at_kafka(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_client, "find_rest", lambda *_: FoundLeader())
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = f"127.0.0.1:{server.getsockname()[1]}"
    config = config.model_copy(update={"coordination": CoordinationConfig(rest=at)})
    probes: list[str] = []
    monkeypatch.setattr(
        control_view, "find_kafka_problem", lambda at, _: probes.append(at) or "nothing accepts a connection"
    )
    with LeaderClient.from_config(config) as leader, pytest.raises(NoLeaderError) as error:
        leader.get("/v1/leader")
    assert probes == ["127.0.0.1:1"]
    assert "Kafka at 127.0.0.1:1 does not answer: nothing accepts" in str(error.value)
    assert error.value.problem.remedy.startswith("start the broker")


def test_without_the_control_topic_nothing_is_known(read: Callable[..., Placement]) -> None:
    late = read(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    assert (late.known, late.units) == (False, {})
    assert late.problem == "the control topic cannot be read: Local: Timed out"
    away = read(KafkaUnreachableError.from_reason("h:1", "it is closed"))
    assert (away.known, away.units) == (False, {})
    assert away.problem == (
        "the control topic cannot be read: Kafka at h:1 does not answer: it is closed: start the broker, or "
        "correct kafka.bootstrap and kafka.options"
    )


AGENTS = [
    {"name": "a1", "state": "synced", "version": "0.2.0"},
    {"name": "a2", "state": "synced", "version": ""},
    {"name": "a3", "state": "registered", "version": ""},
]


def test_versions_of_the_leader_and_its_agents_are_known(read: Callable[..., Placement]) -> None:
    found = read(led(), lambda _: LeaderAnswers([], {"version": "0.1.0"}, AGENTS)).versions
    assert found == (
        ProcessVersion("coordinator", "c1", "0.1.0"),
        ProcessVersion("agent", "a1", "0.2.0"),
        ProcessVersion("agent", "a2", "before 0.1.0"),
        ProcessVersion("agent", "a3", None),
    )


def test_a_leader_that_reports_no_version_knows_none_of_its_agents(read: Callable[..., Placement]) -> None:
    agents = [{"name": "a1", "state": "synced"}]
    found = read(led(), lambda _: LeaderAnswers([], {"name": "c1"}, agents)).versions
    assert [each.version for each in found] == ["before 0.1.0", None]


def test_processes_are_shown_by_their_version() -> None:
    seen = (
        ProcessVersion("coordinator", "c1", "0.2.0"),
        ProcessVersion("agent", "a1", "0.1.0"),
        ProcessVersion("agent", "a2", "0.2.0"),
        ProcessVersion("agent", "a3", None),
    )
    assert format_version_lines(seen) == [
        "rowlock 0.1.0: agent a1",
        "rowlock 0.2.0: coordinator c1, agent a2",
        "rowlock ?: agent a3",
    ]
