"""TLS and mutual TLS of the heartbeat transport, with certificates of two authorities made here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from coordinator.core.messages import Header, Superseded
from coordinator.transport.ask import ask_leader
from coordinator.transport.channel import HEARTBEAT, open_channel
from coordinator.transport.security import Security
from coordinator.transport.wire import Opening, Serving, encode_up, unframe_down
from tests.transport_kit import Authority, Server, calling, serving, until


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def foreign(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "foreign")


@pytest.fixture
def server(ours: Authority) -> Iterator[Server]:
    """Mutual TLS, leading term 5."""
    with serving(security=ours.security("coordinator"), name="mtls") as one:
        one.lead(5)
        yield one


def opened(server: Server, agent: str, security: Security | None) -> object:
    """Return what the server answers to an Opening of `agent`, or the error's code."""
    with open_channel(server.address, security) as channel:
        call = channel.stream_stream(HEARTBEAT)(iter([encode_up(Opening(agent, "x"))]), timeout=10)
        try:
            return unframe_down(next(call))
        except grpc.RpcError as error:
            return error.code()
        finally:
            call.cancel()


def test_both_sides_know_each_other(server: Server, ours: Authority) -> None:
    security = ours.security("a")
    with calling("a", server.address, security=security) as agent:
        until(agent.beat)
        until(server.arrived)
        assert server.server.push("a", Superseded(Header(5, 1)))
        until(lambda: agent.heard)
    asked = ask_leader([server.address], 0, ours.security("somebody at the command line"), timeout=5)
    assert asked is not None
    assert asked.rev == 5


def test_the_name_may_be_an_alternative_one(server: Server, ours: Authority) -> None:
    assert opened(server, "b", ours.security("host-7", names=("a", "b"))) == [Serving(5)]


def test_nobody_takes_another_agents_name(server: Server, ours: Authority) -> None:
    assert opened(server, "b", ours.security("a")) is grpc.StatusCode.PERMISSION_DENIED
    assert not server.events


def test_without_a_certificate_nothing_is_served(server: Server, ours: Authority) -> None:
    nameless = dataclasses.replace(ours.security("a"), mutual=False)
    assert opened(server, "a", nameless) is grpc.StatusCode.UNAVAILABLE
    assert opened(server, "a", None) is grpc.StatusCode.UNAVAILABLE
    assert ask_leader([server.address], 0, nameless, timeout=2) is None
    assert not server.events


def test_a_foreign_certificate_is_refused(server: Server, ours: Authority, foreign: Authority) -> None:
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
        broken.server_credentials()
    with pytest.raises(FileNotFoundError, match=r"nowhere\.key"):
        ask_leader(["127.0.0.1:1"], 0, broken)
