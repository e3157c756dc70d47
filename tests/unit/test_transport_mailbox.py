"""Dispatches that wait for an answer end in exactly one way; and which stream a message goes down."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.messages import Announce, Dispatch, Header, HeartbeatResponse, Superseded
from coordinator.transport.pending_dispatches import PendingDispatches
from coordinator.transport.stream import AgentStream, StreamRegistry
from schemas.units import UnitOperation


def test_an_answer_ends_the_waiting_and_a_second_one_is_late() -> None:
    box = PendingDispatches(timeout=5)
    box.register_dispatch(10, "u", now=0.0)
    assert not box.mark_answered(9)
    assert box.mark_answered(10)
    assert not box.mark_answered(10)
    assert box.ended == {"late": 2, "replied": 1}
    assert len(box) == 0


def test_no_answer_in_time() -> None:
    box = PendingDispatches(timeout=5)
    box.register_dispatch(10, "u", now=0.0)
    box.register_dispatch(11, "v", now=1.0)
    assert box.sweep_overdue(4.9) == []
    assert [entry.unit for entry in box.sweep_overdue(5.0)] == ["u"]
    assert not box.mark_answered(10)
    assert box.mark_answered(11)
    assert box.ended == {"timed out": 1, "late": 1, "replied": 1}


def test_a_later_dispatch_supersedes_of_the_same_unit_only() -> None:
    box = PendingDispatches()
    for op_seq, unit in [(1, "u"), (3, "v"), (4, "u")]:
        box.register_dispatch(op_seq, unit, now=0.0)
    assert box.ended == {"superseded": 1}
    assert not box.mark_answered(1)
    assert all(box.mark_answered(op_seq) for op_seq in (3, 4))


def test_a_closed_channel_ends_what_went_down_it() -> None:
    stream = AgentStream("a", "x", 1, capacity=2)
    for op_seq in (1, 2, 3):  # the third does not fit: it is not waited for
        stream.put_messages([Dispatch(Header(1, 1, 5, op_seq), f"u{op_seq}", UnitOperation.PREPARE)])
    stream.mark_answered([1])
    stream.end_stream("over")
    found = stream.get_counters()
    assert (found["dispatch replied"], found["dispatch channel closed"], found["down dropped"]) == (1, 1, 1)
    assert found["dispatch waiting"] == 0


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.sampled_from("uv")),
        st.tuples(st.just("answered"), st.integers(1, 30)),
        st.tuples(st.sampled_from(["closed", "sweep"]), st.just(0)),
    ),
    max_size=40,
)


@given(_steps)
@settings(max_examples=100)
def test_nothing_is_lost_and_nothing_ends_twice(steps: list[tuple[str, Any]]) -> None:
    box, registered = PendingDispatches(timeout=3), 0
    for now, (what, about) in enumerate(steps):
        if what == "register":
            registered += 1
            box.register_dispatch(registered, about, float(now))
        elif what == "answered":
            box.mark_answered(about)
        elif what == "closed":
            box.close_all()
        else:
            box.sweep_overdue(float(now))
        ended = sum(count for how, count in box.ended.items() if how != "late")
        assert registered == len(box) + ended
    box.sweep_overdue(1e9)
    assert len(box) == 0
    assert not box._by_unit
    assert not box._order


def _stream(number: int, instance: str, agent_epoch: int = 0) -> AgentStream:
    stream = AgentStream("a", instance, number, capacity=2)
    stream.agent_epoch = agent_epoch
    return stream


def test_an_old_streams_end_never_removes_a_newer_one() -> None:
    registry = StreamRegistry()
    old, new = _stream(1, "x"), _stream(2, "x")
    assert registry.add_stream(old) == []
    assert registry.add_stream(new) == [old]
    registry.remove_stream(old)
    registry.remove_stream(old)
    assert registry.find_stream("a", Superseded(Header(1, 1))) is new
    registry.remove_stream(new)
    assert registry.find_stream("a", Superseded(Header(1, 1))) is None
    assert len(registry) == 0


def test_two_processes_of_one_name_are_told_apart_by_their_epoch() -> None:
    registry = StreamRegistry()
    first, second = _stream(1, "x", agent_epoch=5), _stream(2, "y")
    registry.add_stream(first)
    assert registry.add_stream(second) == []
    assert registry.find_stream("a", Superseded(Header(1, 5))) is first
    assert registry.find_stream("a", Announce(Header(1, 6), "o", "inc", 1.0, 1.0)) is second
    second.agent_epoch = 6
    third = _stream(3, "x", agent_epoch=5)  # the first process comes back: it is not the one that is meant
    registry.add_stream(third)
    assert registry.find_stream("a", HeartbeatResponse(Header(1, 6), 0.0, 0.0, 0.0)) is second
    assert registry.find_stream("a", Superseded(Header(1, 5))) is third


def test_only_streams_of_other_processes_count_against_a_new_one() -> None:
    """One that reconnects replaces its own."""
    registry = StreamRegistry()
    for number, instance in enumerate(("x", "y", "y"), 1):
        registry.add_stream(_stream(number, instance))
    assert [registry.count_other_streams(_stream(9, instance)) for instance in ("x", "y", "z")] == [2, 1, 3]


def test_a_message_wakes_the_thread_that_waits_for_it() -> None:
    """Otherwise it would wait for the next message, or for the stream's end."""
    stream, taken = _stream(1, "x"), queue.SimpleQueue[Any]()
    waiting, wait = threading.Event(), stream._changed.wait

    def note_and_wait(timeout: float | None = None) -> bool:
        waiting.set()
        return wait(timeout)

    stream._changed.wait = note_and_wait  # type: ignore[method-assign]
    thread = threading.Thread(target=lambda: taken.put(stream.take_messages()), daemon=True)
    thread.start()
    assert waiting.wait(30)
    stream.put_messages(reported := [Superseded(Header(1, 1))])
    try:
        assert taken.get(timeout=5) == reported
    finally:
        stream.end_stream("over")
        thread.join(30)


def test_a_stream_is_bounded_and_counts_what_it_drops() -> None:
    stream = _stream(1, "x")
    reported = [Superseded(Header(1, 1, 0, number)) for number in range(3)]
    assert (stream.put_messages(reported[:1]), stream.put_messages(reported[1:])) == (1, 1)
    assert stream.dropped == 1
    assert stream.take_messages() == reported[:2]
    assert stream.put_messages(reported[2:]) == 1
    stream.end_stream("first")
    stream.end_stream("second")
    assert (stream.why, stream.take_messages(), stream.put_messages(reported[:1])) == ("first", [], 0)
    assert Counter(dropped=stream.dropped) == {"dropped": 1}
