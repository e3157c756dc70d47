"""Heartbeat streams on loopback: who is served, how a stream ends, and that no fault leaves an agent without
one."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator

import grpc
import pytest
from structlog.testing import capture_logs

from coordinator.core.messages import (
    PROTOCOL_VERSION,
    Dispatch,
    DispatchResponse,
    Header,
    Heartbeat,
    Superseded,
    UnitStatus,
)
from coordinator.transport.access import build_call_metadata
from coordinator.transport.channel import (
    ASK_LEADER,
    HEARTBEAT_METHOD,
    SERVICE,
    open_channel,
)
from coordinator.transport.client import ClientTiming
from coordinator.transport.events import (
    LeaderInfo,
    MessagesArrived,
    StreamClosed,
    StreamOpened,
    TransportEvent,
)
from coordinator.transport.leader_search import ask_leader
from coordinator.transport.server import HeartbeatServer
from coordinator.transport.wire import NotLeader, Opening, Serving, decode_leader_frame, encode_frame
from schemas.io.grpc_settings import DaemonThreadExecutor
from schemas.units import UnitOperation, UnitPhase
from tests.kits.transport import PATIENT, QUICK, RecordingServer, calling, serving, threads_of, until
from tests.servers.proxy import TcpProxy


@pytest.fixture
def server() -> Iterator[RecordingServer]:
    with serving(name="one") as one:
        yield one


@pytest.fixture
def other() -> Iterator[RecordingServer]:
    with serving(name="two") as two:
        yield two


def test_a_streams_events_come_in_order_and_messages_both_ways(server: RecordingServer) -> None:
    server.lead(5)
    with calling("a", server.address) as agent:
        until(lambda: all(agent.beat() for _ in range(50)))
        until(lambda: len(server.arrived()) >= 50)
        reported = [Superseded(Header(5, 1, 0, number)) for number in range(300)]
        assert all(server.server.push_messages("a", [message]) for message in reported)
        until(lambda: len(agent.heard) == 300)
        assert agent.heard == reported
        assert agent.client.search.known_rev == 5
    until(server.closed)
    sent = [message.sent for message in server.arrived()]
    assert sent == sorted(sent)
    kinds = [type(event) for event in server.events]
    assert kinds == [StreamOpened, *[MessagesArrived] * len(sent), StreamClosed]
    assert not server.server.push_messages("a", [reported[0]])
    counters = server.server.get_counters()
    assert counters["no stream"] == 1
    assert counters["up messages"] == len(sent)
    assert counters["down messages"] == 301


def test_what_is_sent_before_the_end_arrives(server: RecordingServer) -> None:
    server.lead(5)
    with calling("a", server.address) as agent:
        until(agent.beat)
        before = len(server.arrived())
        for _ in range(200):
            assert agent.beat()
    until(server.closed)
    assert len(server.arrived()) >= before + 200
    assert server.closed() == {1: "the agent ended it"}


def test_agents_follow_the_leader(server: RecordingServer, other: RecordingServer) -> None:
    server.lead(5)
    other.follow(5, server.address)
    with calling("a", other.address) as agent:  # it only knows the one that does not lead
        until(agent.beat)
        other.lead(9)
        server.follow(9, other.address)
        until(other.opened)
        until(lambda: agent.beat() and other.arrived())
        assert server.closed() == {1: "not the leader"}
        assert agent.client.search.known_rev == 9


def test_another_system_s_coordinator_is_no_coordinator() -> None:
    """Two runs on one machine: units of the same name are others there."""
    refused: list[tuple[str, str]] = []
    with serving(name="theirs", system="theirs") as theirs, serving(name="ours", system="ours") as ours:
        theirs.lead(9)
        assert ask_leader([theirs.address], system="ours", refused=lambda *what: refused.append(what)) is None
        ((peer, why),) = refused
        assert peer == theirs.address
        assert "'theirs'" in why
        assert "'ours'" in why
        with open_channel(theirs.address, None) as channel:  # one that asked nobody before
            opening = iter([encode_frame([Opening("a", "x")])])
            call = channel.stream_stream(HEARTBEAT_METHOD)(opening, metadata=build_call_metadata("ours", ""))
            with pytest.raises(grpc.RpcError, match=r"kafka\.prefix 'theirs'"):
                next(call)
        with calling("a", theirs.address, ours.address, system="ours") as agent:
            ours.lead(5)  # a lower term, but ours
            until(agent.beat)
        assert not theirs.opened()


def test_a_leader_of_an_earlier_term_is_not_joined(server: RecordingServer, other: RecordingServer) -> None:
    """It was paused, say, and has not noticed its end; it may even be the first to answer."""
    server.lead(9)
    with calling("a", server.address, other.address) as agent:
        until(agent.beat)
        server.follow(9, "")
        other.lead(5)
        until(server.closed)
        until(lambda: agent.client.counts["not leader"] >= 1)
        assert ask_leader([server.address, other.address], 9) is None
        assert not other.opened()
        other.lead(10)
        until(other.opened)


def test_the_server_itself_says_which_term_it_serves(server: RecordingServer) -> None:
    """An answer to AskLeader may be older than the stream."""
    server.lead(5)
    with open_channel(server.address, None) as channel:
        call = channel.stream_stream(HEARTBEAT_METHOD)(iter([encode_frame([Opening("a", "x")])]))
        assert decode_leader_frame(next(call)) == [Serving(5)]
        call.cancel()
    server.follow(7, "127.0.0.1:1")
    with open_channel(server.address, None) as channel:
        call = channel.stream_stream(HEARTBEAT_METHOD)(iter([encode_frame([Opening("a", "x")])]))
        assert [decode_leader_frame(data) for data in call] == [[NotLeader(7, "127.0.0.1:1")]]


def test_ask_leader_takes_the_latest_term_and_passes_over_the_dead(
    server: RecordingServer, other: RecordingServer
) -> None:
    with socket_that_never_answers() as silent:
        peers = [silent, server.address, other.address]
        assert ask_leader(peers, timeout=0.5) is None
        server.lead(5)
        other.lead(7)
        latest = LeaderInfo(7, other.address, "", mine=True)
        until(lambda: ask_leader(peers, timeout=2) == latest)  # it may have answered too late
        assert ask_leader(peers, known_rev=7, timeout=60) == latest
        assert ask_leader(peers, known_rev=8, timeout=0.5) is None
        other.follow(9, "127.0.0.1:9")
        notified = LeaderInfo(9, "127.0.0.1:9", "", mine=False)
        until(lambda: ask_leader(peers, timeout=0.5) == notified)
    assert ask_leader([], timeout=0.5) is None


@contextlib.contextmanager
def socket_that_never_answers() -> Iterator[str]:
    with TcpProxy(1) as proxy:
        proxy.cut()
        yield proxy.address


def test_the_end_of_an_old_stream_leaves_the_new_one(other: RecordingServer) -> None:
    """The server believes in the old connection long after the agent has come back (GreptimeDB's
    registry)."""
    with serving(name="slow", keepalive=PATIENT) as server, TcpProxy(server.port) as proxy:
        other.follow(5, proxy.address)
        server.server.set_leader(LeaderInfo(5, proxy.address, "", mine=True))
        with calling("a", proxy.address, other.address) as agent:
            until(agent.beat)
            proxy.cut()
            until(lambda: not agent.beat())  # its keepalive has noticed
            proxy.heal()
            until(lambda: len(server.opened()) >= 2)
            until(lambda: len(server.closed()) == len(server.opened()) - 1)
            until(agent.beat)
            assert server.server.push_messages("a", [Superseded(Header(5, 1))])
            until(lambda: agent.heard)
            assert server.server.get_counters()["streams"] == 1


@pytest.mark.parametrize(
    ("up", "down"), [(True, False), (False, True), (True, True)], ids=["up", "down", "both"]
)
def test_a_cut_network_is_noticed_and_healed(up: bool, down: bool) -> None:
    with (
        serving(name="cut", keepalive=QUICK.keepalive) as server,
        TcpProxy(server.port) as proxy,
    ):
        server.server.set_leader(LeaderInfo(5, proxy.address, "", mine=True))
        with calling("a", proxy.address) as agent:
            until(agent.beat)
            first = server.opened()[0]
            proxy.cut(up=up, down=down)
            until(
                lambda: first in server.closed()
            )  # the coordinator notices, too: it hears nothing, or no ping's answer
            until(lambda: not agent.beat())
            proxy.heal()
            until(agent.beat)
            before = len(server.arrived())
            until(lambda: agent.beat() and len(server.arrived()) > before)
            assert server.server.push_messages("a", [Superseded(Header(5, 1))])
            until(lambda: agent.heard)


def test_a_reset_connection_is_replaced(server: RecordingServer) -> None:
    with TcpProxy(server.port) as proxy:
        server.server.set_leader(LeaderInfo(5, proxy.address, "", mine=True))
        with calling("a", proxy.address) as agent:
            for _ in range(3):
                until(agent.beat)
                until(lambda: len(server.closed()) == len(server.opened()) - 1)
                proxy.close_connections()
                until(lambda: len(server.closed()) == len(server.opened()))
            until(agent.beat)


def test_a_silent_leader_is_left(server: RecordingServer) -> None:
    """It is there as far as the network can tell, and answers nothing."""
    server.lead(5)
    timing = ClientTiming(quiet=0.2, retry_first=0.01, retry_most=0.1)
    with calling("a", server.address, timing=timing) as agent:
        until(lambda: (agent.beat() or True) and len(server.opened()) >= 3)
        assert len(server.closed()) >= 2


def test_a_slow_reader_is_bounded_and_holds_up_nobody(other: RecordingServer) -> None:
    gate = threading.Event()
    with serving(name="bounded", capacity=100) as server:
        server.lead(5)
        with calling("a", server.address) as agent, calling("b", server.address) as quick:
            until(lambda: agent.beat() and quick.beat())
            agent.client._on_message = lambda message: (gate.wait(), agent.heard.append(message))
            grants = "x" * 100_000
            taken = 0
            while server.server.push_messages("a", [_dispatch(taken, grants)]):
                taken += 1
            assert server.server.get_counters()["down dropped"] == 1
            assert server.server.push_messages("b", [Superseded(Header(5, 1))])
            until(lambda: quick.heard)
            gate.set()
            until(lambda: len(agent.heard) == taken)
            assert [message.header.op_seq for message in agent.heard] == list(range(taken))
            assert server.server.push_messages("a", [Superseded(Header(5, 1))])
            until(lambda: len(agent.heard) == taken + 1)


def _dispatch(op_seq: int, unit: str = "u") -> Dispatch:
    return Dispatch(Header(5, 1, 8, op_seq), unit, UnitOperation.PREPARE)


def test_dispatches_and_their_answers_are_counted() -> None:
    with serving(name="counts", answer_within=0.2) as server:
        server.lead(5)
        with calling("a", server.address) as agent:
            until(agent.beat)
            for op_seq, unit in [(1, "u"), (2, "v"), (3, "v"), (4, "w")]:
                assert server.server.push_messages("a", [_dispatch(op_seq, unit)])
            until(lambda: len(agent.heard) == 4)
            for answers in (1, 1, 0):
                status = UnitStatus("u", 8, UnitPhase.PREPARING)
                assert agent.client.send(DispatchResponse(Header(5, 1, 8, 90), "a", answers, status))
            until(lambda: server.server.get_counters()["dispatch waiting"] == 0)
            counters = server.server.get_counters()
            ended = {
                how: counters[f"dispatch {how}"] for how in ("replied", "late", "superseded", "timed out")
            }
            assert ended == {"replied": 1, "late": 1, "superseded": 1, "timed out": 2}
            assert server.server.push_messages("a", [_dispatch(5, "x")])
        until(server.closed)
        counters = server.server.get_counters()
        assert counters["dispatch waiting"] == 0


def test_an_error_of_the_user_ends_that_stream_only(server: RecordingServer) -> None:
    def fails(event: TransportEvent) -> None:
        server.events.append(event)
        if isinstance(event, MessagesArrived) and event.message.agent == "a":
            raise ValueError("no")

    server.server._on_event = fails
    server.lead(5)
    with calling("a", server.address) as bad, calling("b", server.address) as good:
        until(good.beat)
        until(bad.beat)
        until(lambda: server.closed("a"))
        assert set(server.closed("a").values()) == {"ValueError: no"}
        until(lambda: len(server.opened("a")) >= 2)
        until(lambda: good.beat() and server.arrived())
        assert not server.closed("b")


def test_nobody_speaks_for_another(server: RecordingServer) -> None:
    server.lead(5)
    with calling("a", server.address) as agent:
        until(agent.beat)
        assert agent.client.send(Heartbeat(Header(1, 1, 0, 99), "b", 1.0))
        until(server.closed)
        assert "a message of b in the stream of a" in server.closed()[1]


@pytest.mark.parametrize(
    "first",
    [b"\xff\xff", encode_frame([Heartbeat(Header(1, 1), "a", 1.0)]), encode_frame([Opening("", "x")])],
)
def test_a_stream_begins_with_an_opening(server: RecordingServer, first: bytes) -> None:
    server.lead(5)
    with open_channel(server.address, None) as channel:
        call = channel.stream_stream(HEARTBEAT_METHOD)(iter([first]))
        with pytest.raises(grpc.RpcError) as refused:
            next(call)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not server.events


@pytest.mark.parametrize(
    ("question", "theirs"), [(b"", 1), (b"\x08\x05", 1), (b"\x91\x03", 3), (b"\x92\x03\xc0", 3)]
)
def test_a_caller_of_another_version_is_told_both(
    server: RecordingServer, question: bytes, theirs: int
) -> None:
    server.lead(5)
    output = rf"version {theirs} of the protocol,.* this side speaks version {PROTOCOL_VERSION}"
    with open_channel(server.address, None) as channel:
        with pytest.raises(grpc.RpcError, match=output) as refused:
            channel.unary_unary(ASK_LEADER)(question, timeout=60)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        call = channel.stream_stream(HEARTBEAT_METHOD)(iter([question]), timeout=60)
        with pytest.raises(grpc.RpcError, match=output) as refused:
            next(call)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert server.server.get_counters()["unreadable"] == 2
    assert not server.events


def test_an_agent_of_another_version_and_the_coordinator_both_log_it(
    server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.lead(5)
    monkeypatch.setattr("coordinator.transport.leader_search.put_question", lambda: b"\x91\x03")
    with capture_logs() as logs, calling("a", server.address):
        until(lambda: server.server.get_counters()["unreadable"] >= 3)
    output = f"a question of version 3 of the protocol, and this side speaks version {PROTOCOL_VERSION}: "
    theirs = [line for line in logs if line["event"] == "agent refused by a coordinator"]
    ours = [line for line in logs if line["event"] == "request of a caller not readable"]
    assert [(line["log_level"], line["peer"]) for line in theirs] == [("error", server.address)], "said once"
    assert [line["log_level"] for line in ours] == ["error"], "said once a minute"
    assert theirs[0]["reason"].startswith(output)
    assert ours[0]["error"].startswith(output)


@pytest.mark.parametrize(("answer", "theirs"), [(b"", 1), (b"\x08\x05\x12\x03h:1", 1), (b"\x92\x03\x90", 3)])
def test_a_coordinator_of_another_version_is_refused(answer: bytes, theirs: int) -> None:
    refused: list[tuple[str, str]] = []
    with serving_answers(answer) as peer:
        assert ask_leader([peer], timeout=60, refused=lambda *what: refused.append(what)) is None
    ((at, why),) = refused
    assert at == peer
    assert re.search(rf"version {theirs} of the protocol,.* this side speaks version {PROTOCOL_VERSION}", why)


@contextlib.contextmanager
def serving_answers(answer: bytes) -> Iterator[str]:
    """A coordinator that answers the question who leads with these bytes."""
    handler = grpc.unary_unary_rpc_method_handler(lambda _question, _context: answer)
    server = grpc.server(DaemonThreadExecutor("answers"))
    method = ASK_LEADER.rpartition("/")[2]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def test_two_processes_of_one_name_are_both_heard(server: RecordingServer) -> None:
    """The one that is superseded is told so down its own stream, or it would never know."""
    server.lead(5)
    with calling("a", server.address) as old, calling("a", server.address) as new:
        until(lambda: old.beat(agent_epoch=1))
        until(lambda: new.beat(agent_epoch=2))
        until(lambda: len(server.arrived()) >= 2)
        assert server.server.push_messages("a", [Superseded(Header(5, 1))])
        until(lambda: old.heard)
        assert server.server.push_messages("a", [Superseded(Header(5, 2))])
        until(lambda: new.heard)
        assert len(old.heard) == len(new.heard) == 1


def test_an_address_that_is_taken_is_refused(server: RecordingServer) -> None:
    with pytest.raises(OSError, match=f"cannot listen on {server.address}"):
        HeartbeatServer(server.address, server.events.append).start()


def test_nothing_is_left_after_close() -> None:
    with serving(name="leaves-nothing") as server:
        server.lead(5)
        with calling("leaver", server.address) as agent, calling("stayer", server.address) as stayer:
            until(lambda: agent.beat() and stayer.beat())
            server.server.close()
            assert sorted(server.closed("leaver")) + sorted(server.closed("stayer")) != []
    until(lambda: not threads_of("leaves-nothing", "leaver", "stayer"))
