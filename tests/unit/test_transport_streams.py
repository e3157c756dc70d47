"""The parts of both ends of the transport, each by itself: streams, the search for the leader, callers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from structlog.testing import capture_logs

from coordinator.core.messages import Header, Heartbeat
from coordinator.transport import callers, client
from coordinator.transport.callers import CallerCheck
from coordinator.transport.client import HeartbeatClient
from coordinator.transport.client_stream import CAPACITY, ClientStream
from coordinator.transport.events import LeaderInfo, MessagesArrived, StreamClosed, StreamOpened
from coordinator.transport.leader_search import Caller, LeaderSearch, _read_answer
from coordinator.transport.open_streams import PER_AGENT, OpenStreams
from coordinator.transport.security import Security
from coordinator.transport.server import HeartbeatServer
from coordinator.transport.stream import AgentStream
from coordinator.transport.wire import NotLeader, Opening, WireError, decode_agent_frame, encode_frame

BEAT = Heartbeat(Header(1, 1, 0, 1), "a", 1.0)


class Channel:
    """A channel whose call keeps the frames' iterator."""

    frames: Iterator[bytes]

    def stream_stream(self, _method: str) -> Callable[..., object]:
        def call(frames: Iterator[bytes], **_: object) -> object:
            self.frames = frames
            return self

        return call


@pytest.fixture
def stream() -> ClientStream:
    return ClientStream(cast("grpc.Channel", Channel()), Opening("a", "i"), ())


def test_silence_counts_from_the_first_message_without_an_answer(stream: ClientStream) -> None:
    assert [stream.begin_wait(now) for now in (10.0, 12.0, 15.0)] == [0.0, 2.0, 5.0]
    stream.note_message()
    assert [stream.begin_wait(now) for now in (20.0, 21.0)] == [0.0, 1.0]


def test_a_stream_sends_its_opening_first_and_all_that_waits_before_it_ends() -> None:
    channel = Channel()
    stream = ClientStream(cast("grpc.Channel", channel), Opening("a", "i"), ())
    assert not stream.served
    stream.begin_service()
    assert stream.served
    assert stream.put_message(BEAT)
    stream.end_stream()
    assert not stream.put_message(BEAT), "it ends"
    sent = [message for frame in channel.frames for message in decode_agent_frame(frame)]
    assert sent == [Opening("a", "i"), BEAT]


def test_a_stream_keeps_a_bounded_number_of_messages(stream: ClientStream) -> None:
    assert [stream.put_message(BEAT) for _ in range(CAPACITY)] == [True] * (CAPACITY - 1) + [False]


# the coordinator's end


@pytest.fixture
def streams() -> OpenStreams:
    made = OpenStreams(100, 5.0)
    made.set_leader(LeaderInfo(7, "h:1", "", mine=True))
    return made


def admit(streams: OpenStreams, instance: str = "i") -> AgentStream:
    admitted = streams.admit_stream(Opening("a", instance))
    assert isinstance(admitted, tuple)
    assert admitted[1] == 7
    return admitted[0]


def test_a_client_s_newer_stream_replaces_its_older_one(streams: OpenStreams) -> None:
    older, other, newer = admit(streams), admit(streams, "j"), admit(streams)
    assert (older.why, other.why, newer.why) == ("replaced by a newer stream", None, None)


def test_an_agent_has_a_bounded_number_of_streams(streams: OpenStreams) -> None:
    for number in range(PER_AGENT):
        admit(streams, str(number))
    assert streams.admit_stream(Opening("a", "one more")) is None
    assert isinstance(streams.admit_stream(Opening("b", "i")), tuple)


def test_no_stream_is_admitted_without_a_term_or_after_the_close(streams: OpenStreams) -> None:
    stream = admit(streams)
    reader = threading.Thread(target=lambda: None)
    streams.start_reader(stream, reader)
    assert streams.close() == [reader]
    assert stream.why == "the server closes"
    assert isinstance(streams.admit_stream(Opening("a", "i")), NotLeader)
    follower = OpenStreams(100, 5.0)
    follower.set_leader(LeaderInfo(8, "h:2", "", mine=False))
    assert follower.admit_stream(Opening("a", "i")) == NotLeader(8, "h:2")


def test_a_stream_that_has_ended_leaves_its_counters_alone(streams: OpenStreams) -> None:
    stream = admit(streams)
    stream.up["up messages"] += 3
    streams.remove_stream(stream)
    assert (streams.get_counters()["up messages"], streams.get_counters()["streams"]) == (3, 0)
    assert streams.close() == []
    assert streams.push_messages("a", []) == 0


# the search


def test_a_named_leader_is_asked_besides_the_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        "coordinator.transport.leader_search.ask_leader", lambda *args, **_: asked.append(args)
    )
    search = LeaderSearch(Caller("a"), ("h:1",), 1.0)
    search.note_rev(5)
    search.follow_hint(NotLeader(3, "h:9"))
    search.ask_peers()
    assert [each[:2] for each in asked] == [(("h:1", "h:9"), 5)]


def test_unreadable_callers_are_all_counted_and_logged_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(callers.time, "monotonic", lambda: now[0])
    check = CallerCheck("", "")
    with capture_logs() as logs:
        for _ in range(5):
            check.count_unreadable(WireError("of another version"), "peer")
            now[0] += callers.LOG_EVERY / 2
    assert (check.counts["unreadable"], len(logs)) == (5, 3)


class Call(grpc.RpcError, grpc.Call):  # type: ignore[misc]  # gRPC has no types
    """How a call ended."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "why"


@pytest.mark.parametrize(
    ("code", "reported"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, [("h:1", "why")]),
        (grpc.StatusCode.UNAUTHENTICATED, [("h:1", "why")]),
        (grpc.StatusCode.UNAVAILABLE, []),
    ],
)
def test_only_a_coordinator_that_refuses_is_reported(
    code: grpc.StatusCode, reported: list[tuple[str, str]]
) -> None:
    """One that does not answer is skipped."""
    refused: list[tuple[str, str]] = []
    done: Any = SimpleNamespace(exception=lambda: Call(code))
    assert _read_answer("h:1", done, lambda *why: refused.append(why)) is None
    assert refused == reported


# both ends


class Context:
    """A call's context: how it was aborted, which ends it."""

    aborted: grpc.StatusCode | None = None

    def __init__(self, *names: str) -> None:
        self._names = names

    def abort(self, code: grpc.StatusCode, _why: str) -> None:
        self.aborted = code
        raise grpc.RpcError

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_subject_alternative_name": [name.encode() for name in self._names]}

    def is_active(self) -> bool:
        return True

    def peer(self) -> str:
        return "peer"


def server(events: list[Any] | None = None, security: Security | None = None) -> HeartbeatServer:
    heard = [] if events is None else events
    return HeartbeatServer("127.0.0.1:0", heard.append, security=security)


@pytest.mark.parametrize("first", [BEAT, Opening("", "i")])
def test_a_stream_that_begins_with_anything_else_is_refused(first: Heartbeat | Opening) -> None:
    context = Context()
    with pytest.raises(grpc.RpcError):
        server()._read_opening(iter([encode_frame([first])]), cast("grpc.ServicerContext", context))
    assert context.aborted is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("mutual", "name", "served"), [(True, "b", False), (True, "a", True), (False, "b", True)]
)
def test_an_agent_needs_a_certificate_with_its_name_where_certificates_are_demanded(
    mutual: bool, name: str, served: bool
) -> None:
    context, secured = Context(name), server()
    secured._security = cast("Security", SimpleNamespace(mutual=mutual))
    read = partial(
        secured._read_opening,
        iter([encode_frame([Opening("a", "i")])]),
        cast("grpc.ServicerContext", context),
    )
    if served:
        assert read() == (Opening("a", "i"), [])
        return
    with pytest.raises(grpc.RpcError):
        read()
    assert context.aborted is grpc.StatusCode.PERMISSION_DENIED


def test_a_stream_that_was_read_to_its_end_is_open_no_more() -> None:
    events: list[Any] = []
    receiving = server(events)
    receiving.set_leader(LeaderInfo(7, "h:1", "", mine=True))
    admitted = receiving._streams.admit_stream(Opening("a", "i"))
    assert isinstance(admitted, tuple)
    receiving._read_stream(admitted[0], [BEAT], iter(()), cast("grpc.ServicerContext", Context()))
    assert [type(each) for each in events] == [StreamOpened, MessagesArrived, StreamClosed]
    assert receiving.get_counters()["streams"] == 0


def test_instructions_without_an_answer_are_logged() -> None:
    receiving, stream = server(), AgentStream("a", "i", 1, capacity=9)
    stream.mark_answered = lambda _: overdue  # type: ignore[method-assign,assignment]
    for units in ((), ("u", "v")):
        overdue = [SimpleNamespace(unit=unit) for unit in units]
        with capture_logs() as logs:
            receiving._handle_arrived(stream, [], 0)
        assert [each["units"] for each in logs] == [list(units)] * bool(units)


def test_an_agent_follows_the_hint_of_a_coordinator_that_no_longer_leads(stream: ClientStream) -> None:
    calling = HeartbeatClient("a", ("h:1",), lambda _: None)
    assert calling._handle_message(NotLeader(3, "h:9"), stream) == "no longer the leader"
    assert calling.search._hint == "h:9"


def test_a_message_waits_for_a_served_stream(stream: ClientStream) -> None:
    calling = HeartbeatClient("a", ("h:1",), lambda _: None)
    assert not calling.send(BEAT), "no stream"
    calling._stream = stream
    assert not calling.send(BEAT), "not served yet"
    stream.begin_service()
    assert calling.send(BEAT)


def test_a_stream_that_ended_closes_its_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent opens one with each try to reach the leader."""
    closed: list[bool] = []

    class Opened(Channel):
        def close(self) -> None:
            closed.append(True)

        def cancel(self) -> None: ...

        def __iter__(self) -> Iterator[bytes]:
            return iter(())

    monkeypatch.setattr(client, "open_channel", lambda *_: Opened())
    calling = HeartbeatClient("a", ("h:1",), lambda _: None)
    assert not calling._serve_stream(LeaderInfo(7, "h:1", "", mine=True))
    assert closed == [True]
