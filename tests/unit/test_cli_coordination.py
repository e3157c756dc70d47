"""The commands of a cluster against real REST servers over coordinators that are none."""

from __future__ import annotations

import io
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaError, KafkaException
from pydantic import SecretStr
from rich.console import Console
from structlog.testing import capture_logs

from coordinator.agent.shell import SUPERSEDED
from coordinator.control.codec import Beat, Candidate, Claim, Message, Resigned
from coordinator.control.fold import ControlFold
from coordinator.core.leader.state import (
    CancelMove,
    Drain,
    LeaderCommand,
    Move,
    Pause,
    Rebalance,
    Reload,
    Resign,
    Resume,
    Undrain,
)
from coordinator.rest import RestServer, create_app
from coordinator.rest.models import Agent
from coordinator.rest.server import Certificate
from coordinator.server.coordinator import Coordinator
from coordinator.server.operators.api import CommandRefusedError, LeaderView
from coordinator.server.operators.copies import CopyRequested, CopyRequestStored
from coordinator.transport import leader_search
from rowlock.agent import run as agent_command
from rowlock.cli import main
from rowlock.commands import cluster_tables
from rowlock.commands.cluster_tables import build_agents_table, build_cluster_units_table, list_unit_reasons
from rowlock.commands.reasons import print_reasons
from rowlock.commands.tables import escape_markup
from rowlock.coordinator import control_view
from rowlock.coordinator import leader_client as leader_module
from rowlock.coordinator.leader_client import FoundLeader, LeaderClient
from rowlock.coordinator.run import listen_for_rest, serve_rest
from rowlock.errors import CommandError
from rowlock.processes.run import build_agent_name
from schemas.config.addresses import explain_other_kafka
from schemas.config.model import CoordinationConfig, KafkaConfig, load_config
from schemas.problems import Problem, encode_problem
from schemas.slots import SlotReport
from tests.kits import transport as transport_kit
from tests.kits.coordination import Instant
from tests.servers.certificates import Authority
from tests.stands.fake_control import FakeControl, FakeDesk, agent, unit

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources:
  b1: {type: mariadb, host: 127.0.0.1, port: 1, user: u, password: x, tables: [bank.*]}
"""
UNIT = "apply/p/t.b1.bank.acct"
NOWHERE = BROKER = "127.0.0.1:1"
Serve = Callable[..., str]


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Yield what serves a control and returns the address."""
    servers: list[RestServer] = []

    def start(control: FakeControl, token: str = "", ssl: Certificate | None = None, prefix: str = "") -> str:
        app = create_app(control, control.desk, token=SecretStr(token), prefix=prefix)
        servers.append(RestServer(app, "127.0.0.1:0", ssl))
        return servers[-1].start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where the control topic says that REST of the leader is; empty: it names none."""
    reported: list[str] = []
    monkeypatch.setattr(control_view, "find_leader_address", lambda _: reported[0] if reported else None)
    return reported


@pytest.fixture
def rowlock(serve: Serve, control: FakeControl, tmp_path: Path, led: list[str]) -> Callable[..., Result]:
    """Return what runs a command against a coordinator of its own (or the one at `rest`)."""

    def run(command: str, rest: str | None = None) -> Result:
        file = tmp_path / "c.yaml"
        file.write_text(
            CONFIG + f"coordination: {{rest: '{rest or serve(control)}', coordinators: ['{NOWHERE}']}}\n"
        )
        return CliRunner().invoke(main, [*command.split(), "-c", str(file)])

    return run


def test_the_coordinator_of_another_system_takes_no_commands(
    rowlock: Callable[..., Result], serve: Serve, control: FakeControl
) -> None:
    """Two runs on one machine, the second one's commands at the first one's address."""
    refused = rowlock(f"units pause {UNIT}", serve(control, prefix="other"))
    assert refused.exit_code == 2
    assert "kafka.prefix 'other'" in refused.stderr
    assert "'rowlock'" in refused.stderr
    assert control.commands == []
    assert rowlock(f"units pause {UNIT}", serve(control, prefix="rowlock")).exit_code == 0


def test_a_command_probes_kafka_once_and_gives_the_reason(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another system's coordinator refuses the command: Kafka was probed twice, for three seconds each, and
    the reason was not shown."""
    probes: list[str] = []
    monkeypatch.setattr(control_view, "find_kafka_problem", lambda at, _: probes.append(at) or "it is closed")
    file = tmp_path / "c.yaml"
    at = serve(FakeControl(), prefix="other")
    file.write_text(CONFIG + f"coordination: {{rest: '{at}', coordinators: ['{NOWHERE}']}}\n")
    refused = CliRunner().invoke(main, ["units", "list", "-c", str(file)])
    assert (refused.exit_code, probes) == (2, [BROKER])
    assert refused.stderr.startswith(
        f"rowlock: Kafka at {BROKER} does not answer: it is closed. So this system's leader is not known; "
        f"{at} refuses: this coordinator has kafka.prefix 'other', the request has 'rowlock'"
    )
    assert refused.stderr.endswith(": start the broker, or correct kafka.bootstrap and kafka.options\n")


def test_the_leader_is_found_by_the_control_topic_where_another_system_has_its_address(
    rowlock: Callable[..., Result], serve: Serve, control: FakeControl, led: list[str]
) -> None:
    theirs = FakeControl()
    led.append(serve(control, prefix="rowlock"))
    assert rowlock(f"units pause {UNIT}", serve(theirs, prefix="other")).exit_code == 0
    assert (control.commands, theirs.commands) == ([Pause(UNIT)], [])
    assert rowlock("rebalance", NOWHERE).exit_code == 0, "the other one has ended, or never was"
    assert control.commands[1:] == [Rebalance()]


def test_a_leader_that_is_said_to_be_where_another_system_answers_is_not_asked_for_ever(
    rowlock: Callable[..., Result], serve: Serve, control: FakeControl, led: list[str]
) -> None:
    """Ours has ended without a word, and somebody else's has its port now."""
    led.append(serve(control, prefix="other"))
    refused = rowlock("rebalance", serve(FakeControl(), prefix="third"))
    assert (refused.exit_code, control.commands) == (2, [])
    assert "kafka.prefix 'other'" in refused.stderr


def test_the_coordinator_of_another_kafka_takes_no_commands(
    rowlock: Callable[..., Result], control: FakeControl, led: list[str]
) -> None:
    """Two systems with the usual prefix on one machine: `reload` and `units` went to the neighbour's."""
    theirs = FakeControl()
    app = create_app(theirs, theirs.desk, token=None, prefix="rowlock", bootstrap="127.0.0.1:19092")
    server = RestServer(app, "127.0.0.1:0")
    try:
        at = server.start()
        refused = rowlock("reload", at)
        assert (refused.exit_code, theirs.reloads) == (2, [])
        assert "kafka.bootstrap 127.0.0.1:19092" in refused.stderr
        ours = create_app(control, control.desk, token=None, prefix="rowlock", bootstrap=f"{BROKER},b:1")
        leader = RestServer(ours, "127.0.0.1:0")
        try:
            led.append(leader.start())
            assert rowlock("reload", at).exit_code == 0
            assert (control.reloads, theirs.reloads) == ([False], [])
        finally:
            leader.close()
        led[:] = [at]
        assert rowlock("reload", at).exit_code == 0, "the control topic names it: it is the same Kafka"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("own", "theirs", "same"),
    [
        ("a:1,b:2", "B:2", True),
        ("localhost:1", "127.0.0.1:1", True),
        ("a:1", "a:2", False),
        ("", "a:1", True),
        ("a:1", "", True),
    ],
)
def test_one_broker_in_common_is_the_same_kafka(own: str, theirs: str, same: bool) -> None:
    assert (explain_other_kafka(own, theirs) is None) == same


@pytest.mark.parametrize(
    ("reported", "at"),
    [([], None), ([Claim(Candidate("c", "h:1", "h:2"), "n")], "h:2"), ([Claim(Candidate("c", "h:1", ""), "n")], None),  # noqa: E501
     ([Claim(Candidate("c", "h:1", "h:2"), "n"), Resigned(0)], None), (KafkaException(KafkaError(KafkaError._TIMED_OUT)), None)],  # noqa: E501
)  # fmt: skip
def test_who_leads_by_the_control_topic(
    reported: list[Claim | Resigned] | KafkaException, at: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    def read(self: object) -> ControlFold:
        if isinstance(reported, KafkaException):
            raise reported
        fold = ControlFold()
        for offset, message in enumerate(reported):
            fold.fold_message(offset, message)
        return fold

    monkeypatch.setattr(control_view.ControlView, "read_topic", read)
    monkeypatch.setattr(control_view.ControlView, "close", lambda _: closed.append(True))
    assert control_view.find_leader_address(KafkaConfig(bootstrap=NOWHERE)) == at
    assert closed


@pytest.mark.parametrize(("later", "lives"), [([Beat(0)], True), ([], False), ([Resigned(0)], False)])
def test_a_leader_lives_if_it_writes_while_it_is_watched(
    later: list[Message], lives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold, pending = ControlFold(), list(later)
    fold.fold_message(0, Claim(Candidate("c", "h:1", "h:2"), "n"))

    def read(self: object) -> ControlFold:
        if next(later_reads) and pending:
            fold.fold_message(fold.end, pending.pop())
        return fold

    later_reads = itertools.chain([False], itertools.repeat(True))
    monkeypatch.setattr(control_view.ControlView, "read_topic", read)
    monkeypatch.setattr(control_view, "WATCH_POLL_S", 0.01)
    found = control_view.find_living_leader(KafkaConfig(bootstrap=NOWHERE), 0.1)
    assert (found is not None) is lives


def test_rest_may_take_another_port_where_its_own_is_taken() -> None:
    """Two runs that start together find the same port free."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        config = CoordinationConfig(rest=f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(CommandError, match="cannot listen"):
            listen_for_rest(config, or_any_port=False)
        listening, address = listen_for_rest(config, or_any_port=True)
        server = serve_rest(
            config, cast(Coordinator, FakeControl()), FakeDesk(), KafkaConfig(bootstrap=BROKER), listening
        )
        try:
            assert server.address == address != config.rest
            assert httpx.get(f"http://{server.address}/v1/leader", trust_env=False).status_code in {200, 503}
        finally:
            server.close()


def test_units_of_all_pages_as_json(rowlock: Callable[..., Result], control: FakeControl) -> None:
    control.units = tuple(unit(f"apply/p/t{i:05}") for i in range(10_001))
    shown = json.loads(rowlock("units list --output json").stdout)
    assert shown["version"] == 1
    assert [each["unit"] for each in shown["units"]] == [row.unit for row in control.units]
    assert shown["units"][0]["state"] == "replicating"


def test_units_as_a_table(rowlock: Callable[..., Result], control: FakeControl) -> None:
    control.units = (
        unit(UNIT, moving_to="a2", state="prepare"),
        unit(
            "capture/b1",
            paused=True,
            state="absent",
            agent=None,
            checkpoint_ts=None,
            error="[no] grant",
            failures=3,
        ),
    )
    lines = rowlock("units list").stdout.splitlines()
    assert any(UNIT in line and "prepare" in line and "a1 → a2" in line for line in lines)
    assert lines[-2] == "capture/b1 (60.0 s ago, failed 3×): it is paused; before that it failed: [no] grant"
    assert lines[-1] == "  what to do: rowlock units resume"


def test_only_some_units(rowlock: Callable[..., Result]) -> None:
    shown = json.loads(rowlock("units list --agent a2 --output json").stdout)
    assert [each["unit"] for each in shown["units"]] == ["capture/b1"]


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ("--agent a3", "there is no agent 'a3'; known: a1, a2"),
        ("--pipeline nosuch", "there is no pipeline 'nosuch'; known: "),
        ("--source nosuch", "there is no source 'nosuch'; known: "),
    ],
)
def test_a_filter_for_what_does_not_exist_is_an_error(
    rowlock: Callable[..., Result], control: FakeControl, words: str, seen: str
) -> None:
    control.units = ()
    result = rowlock(f"units list {words}")
    assert result.exit_code == 2
    assert seen in result.stderr


def test_agents_and_pipelines(rowlock: Callable[..., Result]) -> None:
    assert [each["name"] for each in json.loads(rowlock("agents list --output json").stdout)["agents"]] == [
        "a1",
        "a2",
    ]
    assert "draining" in rowlock("agents list").stdout
    shown = json.loads(rowlock("pipelines list --output json").stdout)
    assert shown["pipelines"][0]["cut_ts"] == 1_790_000_000_000
    assert "b1" in rowlock("pipelines list").stdout


def test_missing_slots_of_an_agent_are_listed_with_their_reason(
    rowlock: Callable[..., Result], control: FakeControl
) -> None:
    control.agents = (agent("a1", slots=SlotReport(2, 4, 180, 2)),)
    expected = "slots: 2 of 4 on agent a1 for 3 min: Spark grants 2 cores."
    assert rowlock("agents list").stdout.splitlines()[-1].startswith(expected)
    (listed,) = json.loads(rowlock("agents list --output json").stdout)["agents"]
    assert (listed["slots"]["open"], listed["slots"]["configured"]) == (2, 4)


@pytest.mark.parametrize(
    ("health", "shown"),
    [
        ({}, "alive"),
        ({"failures": 4, "backs_off_s": 40.0}, "alive, no units for 40.0 s (4 failed)"),
        ({"failures": 5, "backs_off_s": 0.0}, "alive, on trial (5 failed)"),
    ],
)
def test_an_agent_that_backs_off_is_seen(health: dict[str, object], shown: str) -> None:
    row = Agent.model_validate(agent("a", **health)).model_dump(by_alias=True)
    assert list(build_agents_table([row]).columns[1].cells) == [escape_markup(shown)]


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        ({"version": "0.2.0"}, "0.2.0"),
        ({"version": ""}, "before 0.1.0"),
        ({"version": "", "state": "registered"}, "?"),
    ],
)
def test_an_agent_is_listed_with_its_version(row: dict[str, object], shown: str) -> None:
    listed = Agent.model_validate(agent("a", **row)).model_dump(by_alias=True)
    assert list(build_agents_table([listed]).columns[-1].cells) == [shown]


def test_a_leader_that_does_not_know_versions_has_its_agents_listed() -> None:
    listed = Agent.model_validate(agent("a")).model_dump(by_alias=True)
    del listed["version"]
    assert list(build_agents_table([listed]).columns[-1].cells) == ["?"]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (f"units move {UNIT} a2", Move(UNIT, "a2")),
        (f"units cancel {UNIT}", CancelMove(UNIT)),
        (f"units pause {UNIT}", Pause(UNIT)),
        (f"units resume {UNIT}", Resume(UNIT)),
        ("agents drain a1", Drain("a1")),
        ("agents undrain a1", Undrain("a1")),
        ("rebalance", Rebalance()),
        ("resign", Resign()),
    ],
)
def test_commands(
    rowlock: Callable[..., Result], control: FakeControl, words: str, command: LeaderCommand
) -> None:
    result = rowlock(words)
    assert (result.exit_code, result.stderr) == (0, "")
    assert control.commands == [command]


@pytest.mark.parametrize(
    ("words", "asked", "reported"),
    [
        ("--where id>3 --max-rows-per-second 5", CopyRequested("b.t", where="id>3", max_rows_per_second=5), "shows the progress"),  # noqa: E501
        ("--source b1 --cancel", CopyRequested("b.t", source="b1", cancel=True), "cancelled"),
        ("--rate-only --max-rows-per-second 5000", CopyRequested("b.t", max_rows_per_second=5000, rate_only=True), "at 5,000 rows a second at most"),  # noqa: E501
        ("--rate-only", CopyRequested("b.t", rate_only=True), "as fast as the source gives rows"),
        ("--rate-only --cancel", None, ""),
        ("--rate-only --where id>3", None, ""),
        ("--cancel --where id>3", None, ""),
    ],
)  # fmt: skip
def test_copies(
    rowlock: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, words: str, asked: CopyRequested | None,
    reported: str
) -> None:  # fmt: skip
    given: list[CopyRequested] = []
    monkeypatch.setattr(
        FakeDesk,
        "request_copy",
        lambda _, asked, by: given.append(asked) or CopyRequestStored("7f3c", "b1", asked.table),
    )
    result = rowlock(f"copy b.t {words}")
    assert (given, result.exit_code) == ([asked] if asked else [], 0 if asked else 2)
    assert reported in result.stdout


def test_what_the_leader_refuses_is_exit_2_with_its_reason(
    rowlock: Callable[..., Result], control: FakeControl
) -> None:
    control.fails = {Move: CommandRefusedError(Problem("agent a9 is unknown, away or draining"))}
    result = rowlock(f"units move {UNIT} a9")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "rowlock: agent a9 is unknown, away or draining\n"


def test_a_name_with_odd_characters_arrives_as_it_is(
    rowlock: Callable[..., Result], control: FakeControl
) -> None:
    assert rowlock("units pause apply/p/t.b1.größe?#%2F").exit_code == 0
    assert control.commands == [Pause("apply/p/t.b1.größe?#%2F")]


def test_another_coordinator_names_the_leader(
    rowlock: Callable[..., Result], control: FakeControl, serve: Serve
) -> None:
    follower = FakeControl(LeaderView(8, "c1", "x:1", serve(control)))
    assert rowlock("rebalance", serve(follower)).exit_code == 0
    assert (control.commands, follower.commands) == ([Rebalance()], [])


def test_where_nobody_answers_the_coordinators_are_asked(
    rowlock: Callable[..., Result], control: FakeControl, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = serve(control)
    monkeypatch.setattr(leader_module, "find_rest", lambda *_: FoundLeader(at))
    assert rowlock("rebalance", NOWHERE).exit_code == 0
    assert control.commands == [Rebalance()]


def test_no_coordinator_at_all_is_said_after_a_take_over_could_have_been(
    rowlock: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_module, "UNHEARD_S", 0.5)
    result = rowlock("units list", NOWHERE)
    assert result.exit_code == 2
    assert f"{NOWHERE} does not answer" in result.stderr
    assert "start `rowlock coordinator`" in result.stderr


def test_where_the_leader_has_just_died_a_coordinator_that_is_electing_is_waited_for(
    control: FakeControl, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rest` was the leader's; the other coordinator answers over gRPC only, at first that there is no
    leader. That is not "no coordinator answers"."""
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            server.follow(9, "x:1", serve(control))

    monkeypatch.setattr(leader_module, "UNHEARD_S", 0.0)
    monkeypatch.setattr(leader_module.time, "sleep", wait)
    with transport_kit.serving() as server:
        config = CoordinationConfig(rest=NOWHERE, coordinators=[server.address])
        with LeaderClient(config) as client:
            client.post("/v1/rebalance")
    assert len(waits) >= 3  # others of this process may sleep as well
    assert control.commands == [Rebalance()]


def test_something_else_on_the_port(rowlock: Callable[..., Result], serve: Serve, tmp_path: Path) -> None:
    import threading
    from http.server import HTTPServer, SimpleHTTPRequestHandler

    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        result = rowlock("resign", f"127.0.0.1:{other.server_port}")
    assert result.exit_code == 2
    assert "is no coordinator: correct coordination.rest" in result.stderr


def test_during_an_election_a_command_waits(
    control: FakeControl, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    elected, control.seen_leader = control.seen_leader, None
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 5:
            control.seen_leader = elected

    monkeypatch.setattr(leader_module.time, "sleep", wait)
    with LeaderClient(CoordinationConfig(rest=serve(control)), find=FoundLeader) as leader:
        leader.post("/v1/rebalance")
    assert len(waits) == 5
    assert control.commands == [Rebalance()]


def test_a_reload_is_shown_and_a_refused_one_is_exit_2_with_every_line(
    rowlock: Callable[..., Result], control: FakeControl
) -> None:
    shown = rowlock("reload")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.splitlines() == [
        "sources.b1.tables: [bank.*] → [bank.*, !bank.tmp]",
        "pipelines.old: removed",
        "placed again: capture of b1",
        "removed: apply units of pipeline old",
        "active: abc",
    ]
    reported = json.loads(rowlock("reload --output json").stdout)
    assert (reported["version"], reported["digest"], control.reloads) == (1, "abc", [False, False])
    control.fails = {
        Reload: CommandRefusedError(Problem("c.yaml:3: wrong"), Problem("agent b: c.yaml:4: wrong"))
    }
    refused = rowlock("reload")
    assert refused.exit_code == 2
    assert refused.stderr.splitlines() == ["rowlock: c.yaml:3: wrong", "rowlock: agent b: c.yaml:4: wrong"]


@pytest.mark.parametrize(
    ("path", "words"), [("/v1/reload", "reload"), ("/v1/copies/rate", "copy b.t --rate-only")]
)
def test_a_coordinator_of_another_system_that_knows_no_such_command_is_passed_over(
    rowlock: Callable[..., Result], serve: Serve, control: FakeControl, led: list[str], path: str, words: str
) -> None:
    """It is of an earlier release: there is nothing at that path, and so nobody to say whose it is."""
    led.append(serve(control, prefix="rowlock"))
    other = FakeControl()
    app = create_app(other, other.desk, token=None, prefix="other")

    async def earlier(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == path:
            scope = {**scope, "path": "/v1/nothing", "raw_path": b"/v1/nothing"}
        await app(scope, receive, send)

    theirs = RestServer(cast(Any, earlier), "127.0.0.1:0")
    try:
        assert rowlock(words, theirs.start()).exit_code == 0
    finally:
        theirs.close()
    assert (control.reloads == [False]) == (words == "reload")


def test_an_election_that_takes_too_long(control: FakeControl, serve: Serve) -> None:
    control.seen_leader = None
    config = CoordinationConfig(rest=serve(control))
    with LeaderClient(config, patience_s=0.0, find=FoundLeader) as leader:
        with pytest.raises(CommandError, match="no coordinator leads at the moment"):
            leader.get("/v1/units")


def test_token_and_certificate(control: FakeControl, serve: Serve, tmp_path: Path) -> None:
    issued = Authority(tmp_path).issue("127.0.0.1")
    rest = serve(control, "topsecret", Certificate(issued.cert, issued.key))
    tls = f"tls: {{ca: '{issued.ca}', cert: '{issued.cert}', key: '{issued.key}'}}"
    for token, exit_code in (("topsecret", 0), ("another", 2)):
        file = tmp_path / "c.yaml"
        file.write_text(CONFIG + f"coordination: {{rest: '{rest}', token: {token}, {tls}}}\n")
        result = CliRunner().invoke(main, ["rebalance", "-c", str(file)])
        assert result.exit_code == exit_code, result.output
        assert token not in result.output
    assert control.commands == [Rebalance()]


def test_an_agent_shows_its_certificate_to_the_coordinators(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`rowlock agent` over real mutual TLS, to a coordinator's transport; only its workers do nothing."""
    authority, stop = transport_kit.Authority(tmp_path, "ca"), threading.Event()
    monkeypatch.setattr(agent_command, "LocalWorkers", lambda *_, **__: Instant())
    monkeypatch.setattr(agent_command, "stopped_by_signals", lambda: nullcontext(stop))
    mine, file = authority.security("a1"), tmp_path / "c.yaml"
    file.write_text(
        CONFIG + f"coordination: {{tls: {{ca: '{mine.ca}', cert: '{mine.cert}', key: '{mine.key}'}}}}\n"
    )
    config = load_config(file, {})
    with transport_kit.serving(security=authority.security("c0")) as server:
        server.lead(1)
        agent = threading.Thread(target=agent_command.run_agent, args=(config, "a1", [server.address]))
        agent.start()
        try:
            transport_kit.until(lambda: server.opened("a1"))
        finally:
            stop.set()
            agent.join(20)
    assert not agent.is_alive()


def test_an_agent_ends_when_a_coordinator_leads_by_a_new_control_topic(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`rowlock agent`, to a coordinator's transport: it waited for ever for a later term."""
    monkeypatch.setattr(leader_search, "OUTDATED_S", 0.5)
    monkeypatch.setattr(agent_command, "LocalWorkers", lambda *_, **__: Instant())
    monkeypatch.setattr(agent_command, "stopped_by_signals", lambda: nullcontext(threading.Event()))
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    config, ended = load_config(file, {}), list[CommandError]()

    def run(address: str) -> None:
        try:
            agent_command.run_agent(config, "a1", [address])
        except CommandError as error:
            ended.append(error)

    with transport_kit.serving() as server:
        server.lead(100)
        agent = threading.Thread(target=run, args=(server.address,))
        agent.start()
        transport_kit.until(lambda: server.opened("a1"))
        server.lead(3)
        agent.join(20)
    assert [error.problem.remedy for error in ended] == ["start the agent again"]


def test_a_foreign_certificate_is_not_trusted(control: FakeControl, serve: Serve, tmp_path: Path) -> None:
    theirs, ours = Authority(tmp_path, "theirs").issue("127.0.0.1"), Authority(tmp_path, "ours").issue("x")
    rest = serve(control, ssl=Certificate(theirs.cert, theirs.key))
    config = CoordinationConfig.model_validate(
        {"rest": rest, "tls": {"ca": ours.ca, "cert": ours.cert, "key": ours.key}}
    )
    with LeaderClient(config, find=FoundLeader) as leader:
        with pytest.raises(CommandError, match="certificate verify failed"):
            leader.post("/v1/resign")
    assert control.commands == []


def test_units_list_says_why_a_unit_stands_since_when_and_what_to_do() -> None:
    rows = [
        {
            "unit": name, "state": "absent", "agent": None, "epoch": 0, "checkpoint_ts": None,
            "rows_per_s": 0, "paused": False, "moving_to": None, "health": health, "reason": reason,
            "remedy": remedy, "error": reason, "failures": 3, "since_s": 61.0,
        }
        for name, health, reason, remedy in (
            ("apply/p/a", "stopped", "the target table is gone", "start over"),
            ("apply/p/b", "running", None, None),
        )
    ]  # fmt: skip
    out = Console(file=io.StringIO(), width=200)
    out.print(build_cluster_units_table(rows, 0))
    print_reasons(out, list_unit_reasons(rows))
    *_, well, _, _, ill, remedy = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "apply/p/b" in well
    assert ill == "apply/p/a (61.0 s ago, failed 3×): the target table is gone"
    assert remedy == "  what to do: start over"


@pytest.mark.parametrize(("end_on_refusal", "code"), [(True, 2), (False, 0)])
def test_an_agent_ends_with_2_if_a_unit_needs_an_operator_and_it_is_to_end_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end_on_refusal: bool, code: int
) -> None:
    """`rowlock run` ends with it; a service retries the unit."""
    refuse: list[Callable[[str, str], None]] = []
    stopped: list[bool] = []

    def make_workers(*_: object, on_refusal: Callable[[str, str], None]) -> Instant:
        refuse.append(on_refusal)
        return Instant()

    def run(stop: threading.Event) -> int:
        refuse[0]("capture/b1", encode_problem(Problem("no right", "GRANT it")))
        stopped.append(stop.is_set())
        return 0

    monkeypatch.setattr(agent_command, "LocalWorkers", make_workers)
    monkeypatch.setattr(agent_command.AgentShell, "connect", lambda *_, **__: SimpleNamespace(run=run))
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    with capture_logs() as logs:
        ended = agent_command.run_agent(load_config(file, {}), "a1", [], end_on_refusal=end_on_refusal)
    assert (ended, stopped) == (code, [end_on_refusal])
    assert [(each["event"], each["unit"], each["error"]) for each in logs] == [
        ("unit needs an operator", "capture/b1", "no right: GRANT it")
    ]


@pytest.mark.parametrize(("words", "name"), [((), socket.gethostname()), (("--name", "a7"), "a7")])
def test_an_agent_has_the_name_of_its_host_by_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...], name: str
) -> None:
    seen: list[str] = []

    def run_agent(_config: object, name: str, *_: object, **__: object) -> int:
        seen.append(name)
        return 0

    monkeypatch.setattr(agent_command, "run_agent", run_agent)
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    assert CliRunner().invoke(main, ["agent", "-c", str(file), *words]).exit_code == 0
    assert seen == [name]


TAKEN_RUN = (
    "another run of this system has started on this machine and is agent "
    f"{build_agent_name()} now: let only one of them run"
)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a7", "another process is agent a7 now: give each agent a --name of its own"),
        (build_agent_name(), TAKEN_RUN),
    ],
)
def test_an_agent_whose_name_another_process_took_reports_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, message: str
) -> None:
    """tests/integration/test_agent_shell.py starts two of one name."""
    shell = SimpleNamespace(run=lambda _: SUPERSEDED)
    monkeypatch.setattr(agent_command, "LocalWorkers", lambda *_, **__: Instant())
    monkeypatch.setattr(agent_command.AgentShell, "connect", lambda *_, **__: shell)
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    ended = CliRunner().invoke(main, ["agent", "-c", str(file), "--name", name])
    assert ended.exit_code == 2
    assert ended.stderr == f"rowlock: {message}\n"


def test_copy_without_a_table_shows_the_copies_and_asks_for_none(
    rowlock: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.commands.copying.show_copies", lambda *_: 1)
    monkeypatch.setattr("rowlock.commands.copying.post_copy_request", lambda *_: pytest.fail("asked"))
    assert rowlock("copy").exit_code == 1


@pytest.mark.parametrize(
    ("unit", "shown"),
    [
        ({"state": "replicating", "paused": False, "health": "running"}, "replicating"),
        ({"state": "absent", "paused": False, "health": "stopped"}, "stopped (absent)"),
        ({"state": "absent", "paused": True, "health": "stopped"}, "paused"),
        ({"state": "recovering", "paused": True, "health": "running"}, "paused (recovering)"),
    ],
)
def test_a_unit_is_listed_as_paused_only_if_it_is(unit: dict[str, object], shown: str) -> None:
    assert cluster_tables._format_state(unit) == shown


@pytest.mark.parametrize(
    ("row", "is_present"), [({}, True), ({"connected": False}, False), ({"state": "expired"}, False)]
)
def test_an_agent_is_alone_alive_if_it_is_connected_and_synced(
    row: dict[str, object], is_present: bool
) -> None:
    listed = Agent.model_validate(agent("a", **row)).model_dump(by_alias=True)
    [cell] = build_agents_table([listed]).columns[1].cells
    assert (cell == "alive") is is_present


@pytest.mark.parametrize(("count", "shown"), [(3, "u0, u1, u2"), (4, "u0, u1, u2 and 1 more")])
def test_a_pipeline_waits_for_some_units_and_for_more(count: int, shown: str) -> None:
    row = {
        "pipeline": "p", "by_source": {}, "waits_for": [f"u{number}" for number in range(count)],
        "checkpoint_ts": None, "resolved_ts": None,
    }  # fmt: skip
    assert list(cluster_tables.build_pipelines_table([row], 0).columns[-1].cells) == [shown]
