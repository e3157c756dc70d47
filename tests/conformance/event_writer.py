"""What capture relies on in the writer to Kafka (producer.ports.EventWriter), of whatever kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from producer.ports import EventWriter


class Writing(NamedTuple):
    """A writer, a topic's records as a reader has them (key, value), and two empty topics."""

    writer: EventWriter
    read: Callable[[str], list[tuple[bytes, bytes | None]]]
    a: str = "a"
    b: str = "b"


def test_records_of_a_topic_keep_their_order(writing: Writing) -> None:
    writing.writer.send(writing.a, b"1", b"x")
    writing.writer.send_all(writing.a, [(b"2", b"y"), (b"3", b"z")], 4)
    writing.writer.send(writing.b, b"4", b"x")
    writing.writer.send(writing.a, b"2", None)
    writing.writer.drain()
    assert writing.read(writing.a) == [(b"1", b"x"), (b"2", b"y"), (b"3", b"z"), (b"2", None)]
    assert writing.read(writing.b) == [(b"4", b"x")]


def test_offsets_are_those_of_the_last_acknowledged_records(writing: Writing) -> None:
    offsets: list[int] = []
    for number in range(3):
        writing.writer.send(writing.a, b"%d" % number, b"x", offsets.append)
    writing.writer.send_all(writing.b, [(b"1", b"x"), (b"2", b"x")], 4)
    writing.writer.drain()
    assert offsets == [0, 1, 2]
    assert writing.writer.offsets == {writing.a: 2, writing.b: 1}


def test_an_action_follows_the_records_before_it(writing: Writing) -> None:
    done: list[object] = []
    writing.writer.send(writing.a, b"1", b"x", done.append)
    writing.writer.call_when_acknowledged(lambda: done.append("first"))
    writing.writer.send(writing.b, b"2", b"x", lambda _: done.append("b"))
    writing.writer.call_when_acknowledged(lambda: done.append("second"))
    writing.writer.drain()
    assert sorted(map(str, done)) == ["0", "b", "first", "second"]
    assert done.index(0) < done.index("first")
    assert done.index("b") < done.index("second") > done.index("first"), "topics need not wait for each other"


def test_an_action_with_nothing_before_it_runs_at_once(writing: Writing) -> None:
    done: list[str] = []
    writing.writer.drain()
    writing.writer.call_when_acknowledged(lambda: done.append("at once"))
    assert done == ["at once"]


def test_no_records_are_no_message(writing: Writing) -> None:
    writing.writer.send_all(writing.a, [], 0)
    writing.writer.flush()
    writing.writer.drain()
    assert (writing.read(writing.a), writing.writer.offsets, writing.writer.full) == ([], {}, False)
