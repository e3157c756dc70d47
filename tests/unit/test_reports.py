"""Datagrams from workers to the driver: how many, how long, and whose."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from consumer.attempt.reports import (
    MAX_BYTES,
    MAX_MESSAGE_CHARS,
    MAX_REPORTS,
    LaneFigures,
    Report,
    ReportReceiver,
    ReportSender,
    clear_figures,
)
from schemas.problems import Problem, decode_problem, encode_problem

ONE = Report(
    "t", "ok", 3, 9, applied=1, dropped=2, held=3, displaced=4, commit_ts_ms=5, position=(0, 1, 2, 3),
    query="q", message="m", lanes=LaneFigures(1, 2, 3, 4, 5, 6),
)  # fmt: skip
#: A hang's end; what has come is returned at once.
LONG_S = 60.0


@pytest.fixture
def receiver() -> Iterator[ReportReceiver]:
    made = ReportReceiver()
    yield made
    made.close()


def received(receiver: ReportReceiver, count: int) -> list[Report]:
    """Return `count` reports, however many datagrams they come in."""
    found: list[Report] = []
    while len(found) < count:
        new = receiver.receive(LONG_S)
        assert new, "nothing came"
        found += new
    return found


@pytest.mark.parametrize("count", [1, MAX_REPORTS - 1, MAX_REPORTS, MAX_REPORTS + 1, 3 * MAX_REPORTS])
def test_reports_come_as_they_were_sent(receiver: ReportReceiver, count: int) -> None:
    sender = ReportSender(receiver.port, receiver.token)
    sent = [Report(f"t{n}", "ok", n, n) for n in range(count)]
    sender.send(sent)
    assert received(receiver, count) == sent
    assert receiver.receive(0.0) == []
    sender.send([ONE])
    assert received(receiver, 1) == [ONE]
    sender.close()


@pytest.mark.parametrize("character", ["x", "ü", "漢", "😀"])
def test_more_than_udp_takes_at_once_comes_in_parts(receiver: ReportReceiver, character: str) -> None:
    """Whoever sends passes over errors: of 50 topics whose reasons are in Chinese nobody heard."""
    sender = ReportSender(receiver.port, receiver.token)
    long = [
        Report("t" * 249, "stopped", n, n, query="q" * 40, message=character * 9000)
        for n in range(MAX_REPORTS)
    ]
    sender.send(long)
    found = received(receiver, MAX_REPORTS)
    assert [each.epoch for each in found] == list(range(MAX_REPORTS))
    assert {len(each.message) for each in found} == {MAX_MESSAGE_CHARS}
    sender.close()


@pytest.mark.parametrize("length", [MAX_MESSAGE_CHARS, MAX_MESSAGE_CHARS + 1, 10 * MAX_MESSAGE_CHARS])
def test_a_long_message_keeps_its_beginning_its_end_and_its_remedy(
    receiver: ReportReceiver, length: int
) -> None:
    sender = ReportSender(receiver.port, receiver.token)
    remedy = "r" * (MAX_MESSAGE_CHARS // 2)
    problem = Problem("a" * 99 + "b" * (length - len(remedy) - 1 - 198) + "c" * 99, remedy)
    message = encode_problem(problem)
    sender.send([Report("t", "stopped", 1, 1, message=message)])
    found = received(receiver, 1)[0].message
    sender.close()
    if length == MAX_MESSAGE_CHARS:
        assert found == message
    kept = decode_problem(found)
    assert kept.remedy == remedy
    assert (kept.what[:99], kept.what[-99:]) == ("a" * 99, "c" * 99)


def test_what_is_not_of_this_run_is_not_heard(receiver: ReportReceiver) -> None:
    stranger = ReportSender(receiver.port, "another")
    stranger.send([ONE])
    noise = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for raw in (b"", b"{", b"\xff\xfe", b'{"token":1}'):
        noise.sendto(raw, ("127.0.0.1", receiver.port))
    sender = ReportSender(receiver.port, receiver.token)
    sender.send([ONE])
    found: list[Report] = []
    while not found:
        found = receiver.receive(LONG_S)
    assert found == [ONE]
    for each in (stranger, noise, sender):
        each.close()


def test_figures_are_said_once() -> None:
    again = clear_figures(ONE)
    assert (again.applied, again.dropped, again.held, again.displaced) == (0, 0, 0, 0)
    assert again == Report(
        "t", "ok", 3, 9, commit_ts_ms=5, position=(0, 1, 2, 3), query="q", message="m",
        lanes=LaneFigures(open_quarantine=6),
    )  # fmt: skip


@pytest.mark.parametrize("over", [0, 1])
def test_as_much_as_udp_takes_goes_at_once_and_a_byte_more_in_two(over: int) -> None:
    """One report that is too long alone is tried: what Kafka calls a topic and a source a query ends far
    below."""
    sender = ReportSender(9, "token")
    sent: list[bytes] = []

    class Socket:
        def sendto(self, raw: bytes, _address: tuple[str, int]) -> None:
            sent.append(raw)

    sender.close()
    sender._socket = Socket()  # type: ignore[assignment]
    sender.send([Report("t", "ok", 1, 1), Report("u", "ok", 1, 1, query="q")])
    room = MAX_BYTES - len(sent.pop())
    sender.send([Report("t", "ok", 1, 1), Report("u", "ok", 1, 1, query="q" * (1 + room + over))])
    assert len(sent) == 1 + over
    assert over or len(sent[0]) == MAX_BYTES == 65_507
    sender.send([Report("t", "ok", 1, 1, query="q" * MAX_BYTES)])
    assert len(sent) == 2 + over


def test_two_queries_on_a_machine_are_told_of_their_own_units() -> None:
    first, second = ReportReceiver(), ReportReceiver()
    assert first.port != second.port
    for receiver, name in ((first, "a"), (second, "b")):
        sender = ReportSender(receiver.port, receiver.token)
        sender.send([Report(name, "ok", 1, 1)])
        assert [report.topic for report in received(receiver, 1)] == [name]
        sender.close()
        receiver.close()
