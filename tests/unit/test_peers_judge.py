"""The judge of the peers' cases finds what differs, what is late and what is not explained; a held log stays
held."""

from __future__ import annotations

import struct

import pytest

from peers.delayed_log import Line, packets
from peers.judge import BAD, Facts, Place, Verdict, judged
from peers.rounds import ROUNDS, rounds

PLACE = Place("p", "s", "db", "t")


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (Facts("current", compared=True, rows=3), Verdict.EQUAL),
        (Facts("behind", compared=True, rows=3), Verdict.EQUAL),
        (Facts("current", compared=True, differing=["[1]"]), Verdict.DIFFERENT),
        (Facts("current", compared=True, differing=["[1]"], held={"[1]", "[2]"}), Verdict.HELD),
        (Facts("current", compared=True, differing=["[1]", "[3]"], held={"[1]"}), Verdict.DIFFERENT),
        (Facts("current", compared=False, problem="the target has no table"), Verdict.DIFFERENT),
        (Facts("current", compared=False, differing=["[1]"], held={"[1]"}), Verdict.DIFFERENT),
        (Facts("", problem="no unit"), Verdict.DIFFERENT),
        (Facts("behind", compared=True, differing=["[1]"]), Verdict.LATE),
        (Facts("stopped", "why", "do this"), Verdict.STOPPED),
        (Facts("stopped", "why", "do this", compared=True), Verdict.STOPPED),
        (Facts("stopped", "why"), Verdict.MUTE),
        (Facts("stopped"), Verdict.MUTE),
        (Facts("left out", "why", "do this"), Verdict.LEFT_OUT),
        (Facts("left out", "", "do this"), Verdict.MUTE),
    ],
)
def test_every_table_has_one_verdict(facts: Facts, verdict: Verdict) -> None:
    found = judged(PLACE, facts)
    assert found.verdict is verdict
    assert (verdict in BAD) == (verdict in (Verdict.DIFFERENT, Verdict.MUTE, Verdict.LATE))


@pytest.mark.parametrize("count", [0, 1, 2, ROUNDS - 1, ROUNDS, ROUNDS + 1, 10 * ROUNDS])
def test_rounds_hold_every_statement_once_and_in_order(count: int) -> None:
    spans = list(rounds(count))
    assert len(spans) == ROUNDS
    assert [each for low, high in spans for each in range(low, high)] == list(range(count))
    assert all(high - low <= 1 for low, high in spans) == (count <= ROUNDS)


def event(kind: int, end: int, body: bytes = b"", number: int = 7) -> bytes:
    payload = b"\0" + struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body), end, 0) + body
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


def places(left: list[bytes]) -> list[tuple[int, int]]:
    """Return (kind, end) of packets, which must be numbered one after the other."""
    numbers = [each[3] for each in left]
    assert numbers == [numbers[0] + i for i, _ in enumerate(left)] if left else not numbers
    return [struct.unpack_from("<4xB8xI", each, 5) for each in left]


ROTATE = event(4, 0, struct.pack("<Q", 4) + b"binlog.000003crc.")


def test_a_log_is_held_behind_the_released_place() -> None:
    line = Line(released=(3, 200))
    for each in (ROTATE, event(2, 100), event(2, 200), event(2, 300)):
        line.feed(each)
    assert places(line.leaving()) == [(4, 0), (2, 100), (2, 200)]
    line.feed(event(27, 300))  # a heartbeat tells how far the log is: not while something is held
    assert line.leaving() == []
    (beat,) = line.beat()
    assert places([beat]) == [(27, 0)]
    line.released = (3, 299)
    assert line.leaving() == []
    line.released = (4, 4)
    (last,) = line.leaving()
    assert places([last]) == [(2, 300)]
    assert last[3] == beat[3] + 1
    assert line.beat() == []
    line.feed(event(27, 300))
    assert places(line.leaving()) == [(27, 300)]


def test_a_log_that_is_not_held_flows_and_the_next_file_counts_as_later() -> None:
    line = Line()
    other = event(4, 400, struct.pack("<Q", 4) + b"binlog.000004")
    for each in (ROTATE, event(2, 300), other):
        line.feed(each)
    assert places(line.leaving()) == [(4, 0), (2, 300), (4, 400)]
    line.released = (3, 900)
    line.feed(event(2, 100))
    assert line.leaving() == []


def test_a_connection_may_read_what_stood_in_the_log_when_it_asked() -> None:
    line = Line(released=(3, 100), least=(3, 200))
    for each in (ROTATE, event(2, 200), event(2, 0), event(2, 300), event(2, 0)):
        line.feed(each)
    assert places(line.leaving()) == [(4, 0), (2, 200), (2, 0)]
    line.released = (3, 300)
    assert places(line.leaving()) == [(2, 300), (2, 0)]


def test_packets_are_cut_whole() -> None:
    data = bytearray(event(2, 100) + event(2, 200)[:5])
    assert packets(data) == [event(2, 100)]
    data += event(2, 200)[5:]
    assert packets(data) == [event(2, 200)]
    assert not data
