"""TLS and mutual TLS of the heartbeat transport, with certificates of two authorities made here."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from coordinator.core.messages import Header, Superseded
from coordinator.transport.access import build_call_metadata
from coordinator.transport.channel import HEARTBEAT_METHOD, open_channel
from coordinator.transport.leader_search import ask_leader
from coordinator.transport.security import Security
from coordinator.transport.wire import Opening, Serving, decode_leader_frame, encode_frame
from tests.kits.transport import Authority, RecordingServer, calling, serving, until


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def foreign(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "foreign")


@pytest.fixture
def server(ours: Authority) -> Iterator[RecordingServer]:
    """Mutual TLS, leading term 5."""
    with serving(security=ours.security("coordinator"), name="mtls") as one:
        one.lead(5)
        yield one


def opened(server: RecordingServer, agent: str, security: Security | None) -> object:
    """Return what the server answers to an Opening of `agent`, or the error's code."""
    with open_channel(server.address, security) as channel:
        call = channel.stream_stream(HEARTBEAT_METHOD)(
            iter([encode_frame([Opening(agent, "x")])]), timeout=60
        )
        try:
            return decode_leader_frame(next(call))
        except grpc.RpcError as error:
            return error.code()
        finally:
            call.cancel()


def test_both_sides_know_each_other(server: RecordingServer, ours: Authority) -> None:
    security = ours.security("a")
    with calling("a", server.address, security=security) as agent:
        until(agent.beat)
        until(server.arrived)
        assert server.server.push_messages("a", [Superseded(Header(5, 1))])
        until(lambda: agent.heard)
    asked = ask_leader([server.address], 0, ours.security("somebody at the command line"), timeout=60)
    assert asked is not None
    assert asked.rev == 5


def test_the_name_may_be_an_alternative_one(server: RecordingServer, ours: Authority) -> None:
    assert opened(server, "b", ours.security("host-7", names=("a", "b"))) == [Serving(5)]


def test_nobody_takes_another_agents_name(server: RecordingServer, ours: Authority) -> None:
    assert opened(server, "b", ours.security("a")) is grpc.StatusCode.PERMISSION_DENIED
    assert not server.events


def test_without_a_certificate_nothing_is_served(server: RecordingServer, ours: Authority) -> None:
    nameless = dataclasses.replace(ours.security("a"), mutual=False)
    assert opened(server, "a", nameless) is grpc.StatusCode.UNAVAILABLE
    assert opened(server, "a", None) is grpc.StatusCode.UNAVAILABLE
    assert ask_leader([server.address], 0, nameless, timeout=2) is None
    assert not server.events


def test_a_foreign_certificate_is_refused(
    server: RecordingServer, ours: Authority, foreign: Authority
) -> None:
    theirs = dataclasses.replace(foreign.security("a"), ca=ours.ca)  # it trusts us, we do not know it
    assert opened(server, "a", theirs) is grpc.StatusCode.UNAVAILABLE
    assert ask_leader([server.address], 0, theirs, timeout=2) is None
    assert not server.events


def test_a_foreign_coordinator_is_refused(ours: Authority, foreign: Authority) -> None:
    with serving(security=foreign.security("coordinator"), name="foreign") as server:
        server.lead(5)
        assert opened(server, "a", ours.security("a")) is grpc.StatusCode.UNAVAILABLE
        assert not server.events


def test_tls_of_the_server_alone(ours: Authority, foreign: Authority) -> None:
    """The agent's own certificate is neither needed nor looked at; the server's is."""
    with serving(security=ours.security("coordinator", mutual=False), name="tls") as server:
        server.lead(5)
        nobody = Security(ours.ca, Path("none"), Path("none"), mutual=False)
        assert opened(server, "a", nobody) == [Serving(5)]
        assert opened(server, "a", dataclasses.replace(nobody, ca=foreign.ca)) is grpc.StatusCode.UNAVAILABLE
        assert opened(server, "a", None) is grpc.StatusCode.UNAVAILABLE


def test_a_missing_file_is_said(ours: Authority, tmp_path: Path) -> None:
    broken = dataclasses.replace(ours.security("a"), key=tmp_path / "nowhere.key")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.key"):
        broken.load_server_credentials()
    with pytest.raises(FileNotFoundError, match=r"nowhere\.key"):
        ask_leader(["127.0.0.1:1"], 0, broken)


# a token, where no certificate proves who an agent is


@pytest.fixture
def guarded() -> Iterator[RecordingServer]:
    with serving(name="guarded", token="s3cret", streams=6, opening_within=0.5) as one:
        one.lead(5)
        yield one


def test_an_agent_proves_itself_by_the_token(guarded: RecordingServer) -> None:
    with calling("a", guarded.address, token="s3cret") as agent:
        until(agent.beat)
        until(guarded.arrived)
    assert ask_leader([guarded.address], token="s3cret", timeout=60) is not None


@pytest.mark.parametrize("token", ["", "wrong", "s3cret ", "s3creT"])
def test_a_stranger_is_refused_and_told_why_before_it_says_anything(
    guarded: RecordingServer, token: str
) -> None:
    refused: list[tuple[str, str]] = []
    assert (
        ask_leader([guarded.address], token=token, refused=lambda *what: refused.append(what), timeout=60)
        is None
    )
    assert "token" in refused[0][1]

    def flood() -> Iterator[bytes]:
        for _ in range(200):
            drawn.append(1)
            yield bytes(1 << 20)

    drawn: list[int] = []
    with open_channel(guarded.address, None) as channel:
        call = channel.stream_stream(HEARTBEAT_METHOD)(
            flood(), metadata=build_call_metadata("", token), timeout=60
        )
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert len(drawn) < 20, "what a stranger sends is not read"
    assert not guarded.events
    assert guarded.server.get_counters()["strangers"] >= 2


def test_a_stream_that_does_not_begin_is_ended_and_there_are_not_too_many(guarded: RecordingServer) -> None:
    go = threading.Event()

    def silent() -> Iterator[bytes]:
        go.wait(20)
        yield from ()

    with open_channel(guarded.address, None) as channel:
        calls = [
            channel.stream_stream(HEARTBEAT_METHOD)(
                silent(), metadata=build_call_metadata("", "s3cret"), timeout=120
            )
            for _ in range(9)
        ]
        codes = []
        for call in calls:
            with pytest.raises(grpc.RpcError) as caught:
                next(call)
            codes.append(caught.value.code())
        go.set()
    assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes
    assert set(codes) - {grpc.StatusCode.RESOURCE_EXHAUSTED}, "the others were cancelled"
    with calling("a", guarded.address, token="s3cret") as agent:
        until(agent.beat)


def test_one_agent_has_a_few_streams_at_most(guarded: RecordingServer) -> None:
    with ExitStack() as stack:
        channel = stack.enter_context(open_channel(guarded.address, None))
        go = threading.Event()
        stack.callback(go.set)

        def stays(instance: str) -> Iterator[bytes]:
            yield encode_frame([Opening("a", instance)])
            go.wait(20)

        reported: list[object] = []
        calls: list[grpc.Call] = []  # one that nobody holds is cancelled
        for number in range(5):
            call = channel.stream_stream(HEARTBEAT_METHOD)(
                stays(str(number)), metadata=build_call_metadata("", "s3cret"), timeout=120
            )
            calls.append(call)
            try:
                reported.append(decode_leader_frame(next(call)))
            except grpc.RpcError as error:
                reported.append(error.code())
    assert reported == [[Serving(5)]] * 4 + [grpc.StatusCode.RESOURCE_EXHAUSTED]
