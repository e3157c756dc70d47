"""The parts of both ends of the transport, each by itself: streams, the search for the leader, callers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import grpc
import pytest
from structlog.testing import capture_logs

from coordinator.core.messages import Header, Heartbeat
from coordinator.transport import callers
from coordinator.transport.callers import CallerCheck
from coordinator.transport.client_stream import CAPACITY, ClientStream
from coordinator.transport.events import LeaderInfo
from coordinator.transport.leader_search import Caller, LeaderSearch
from coordinator.transport.open_streams import PER_AGENT, OpenStreams
from coordinator.transport.stream import AgentStream
from coordinator.transport.wire import NotLeader, Opening, WireError, decode_agent_frame

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
