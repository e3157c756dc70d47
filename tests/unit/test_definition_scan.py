"""The scan of a log for statements, from recordings; and what a reading of the catalog proves."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator

import pytest

from producer.binlog_format import log_event as log
from producer.definitions.index import StatementIndex, TouchedTable
from producer.definitions.proof import judge_definitions, yield_refuted_tables
from producer.definitions.requests import ProvenDefinition, UnprovenDefinition
from producer.definitions.scan import StatementScan, derive_file_names
from producer.errors import TransientSourceError
from producer.sources.survey import MISSING, ExaminedTable
from schemas.problems import Problem
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.position import LogPoint

FILE, SERVER = "binlog.000007", 41
NAMES = derive_file_names(FILE)
T = ("bank", "t")


class AlterLog:
    """A log of 20-byte events, every tenth an ALTER of bank.t; dumps of it a few events at a time."""

    def __init__(self, events: int, sends_as: int = SERVER) -> None:
        self.points: list[int] = []
        self.events: list[tuple[int, bytes]] = []
        self.sends_as = sends_as
        self.end = 4
        for number in range(events):
            kind, body = log.XID, bytes(8)
            if number % 10 == 9:
                head = struct.pack("<IIBHH", 1, 0, 4, 0, 0)
                kind, body = log.QUERY, head + b"bank\0ALTER TABLE t ADD a int"
                self.points.append(self.end)
            start, self.end = self.end, self.end + 19 + len(body)
            self.events.append(
                (start, b"\0" + struct.pack("<IBIIIH", 1, kind, 7, self.end - start, self.end, 0) + body)
            )
        self.dumps: list[Dump] = []

    def dump(self, file: str, pos: int) -> Dump:
        self.dumps.append(Dump(self, file, pos))
        return self.dumps[-1]

    def statements(self) -> int:
        """How many ALTERs were sent so far, counted as often as they were."""
        return sum(each.sent for each in self.dumps)


class Dump:
    checksum = False
    received_bytes = 0

    def __init__(self, server: AlterLog, file: str, pos: int) -> None:
        rotate = struct.pack("<IBIIIH", 0, log.ROTATE, server.sends_as, 0, 0, 0x20) + struct.pack("<Q", pos)
        self._packets: Iterator[bytes] = itertools.chain(
            [b"\0" + rotate + file.encode()], (packet for start, packet in server.events if start >= pos)
        )
        self.sent, self.closed = 0, False

    def read_packets(self, _timeout: float) -> list[bytes]:
        batch = list(itertools.islice(self._packets, 3))
        self.sent += sum(packet[5] == log.QUERY for packet in batch)
        return batch

    def close(self) -> None:
        self.closed = True


def scan_of(server: AlterLog) -> StatementScan:
    ticks = itertools.count(step=0.5)
    return StatementScan(server.dump, StatementIndex(), clock=lambda: float(next(ticks)))


def nothing() -> None: ...


def test_a_stretch_is_read_once_and_extended() -> None:
    server = AlterLog(1000)
    scan = scan_of(server)
    for end in (200, 4000, 4000, 300, server.end):
        scan.cover_range((7, 100), (7, end), NAMES, SERVER, nothing)
    assert server.statements() <= len(server.points) + len(server.dumps), (
        "each batch may end behind what was asked for"
    )
    assert all(dump.closed for dump in server.dumps)
    behind = [at for at in server.points if at > 2000]
    assert scan.index.find_last_statement(T, (7, 2000)) == (7, behind[-1])
    assert scan.index.find_last_statement(T, (7, 2000), (7, behind[1])) == (7, behind[0])


def test_an_interrupted_scan_goes_on_where_it_was() -> None:
    server = AlterLog(2000)
    scan = scan_of(server)
    calls = itertools.count(1)

    def beat() -> None:
        if next(calls) % 50 == 0:
            raise TransientSourceError("the connection broke")

    attempts = 0
    while scan.index.covered is None or scan.index.covered[1] < (7, server.end):
        attempts += 1
        try:
            scan.cover_range((7, 4), (7, server.end), NAMES, SERVER, beat)
        except TransientSourceError:
            continue
    assert attempts > 5
    assert server.statements() <= len(server.points) + attempts
    assert scan.index.find_last_statement(T, (7, 4)) == (7, server.points[-1])


def test_what_stands_before_is_read_up_to_what_is_known() -> None:
    server = AlterLog(1000)
    scan = scan_of(server)
    scan.cover_range((7, 5000), (7, server.end), NAMES, SERVER, nothing)
    calls = itertools.count(1)

    def beat() -> None:
        if next(calls) == 10:
            raise TransientSourceError("the connection broke")

    with pytest.raises(TransientSourceError):
        scan.cover_range((7, 4), (7, server.end), NAMES, SERVER, beat)
    scan.cover_range((7, 4), (7, server.end), NAMES, SERVER, nothing)
    assert scan.index.covered == ((7, 4), (7, server.end))
    for at, following in itertools.pairwise(server.points):
        assert scan.index.find_last_statement(T, (7, at), (7, following + 1)) == (7, following)


def test_a_log_of_another_server_is_refused() -> None:
    scan = scan_of(AlterLog(10, sends_as=42))
    with pytest.raises(TransientSourceError, match="server 42, but the catalog from server 41"):
        scan.cover_range((7, 4), (7, 100), NAMES, SERVER, nothing)
    assert scan.index.covered is None


def test_silence_is_not_waited_for_ever() -> None:
    server = AlterLog(10)
    with pytest.raises(TransientSourceError, match="silent"):
        scan_of(server).cover_range((7, 4), (7, server.end + 1), NAMES, SERVER, nothing)


def test_another_server_begins_another_index() -> None:
    server = AlterLog(100)
    scan = scan_of(server)
    scan.select_server("a")
    scan.cover_range((7, 4), (7, server.end), NAMES, SERVER, nothing)
    scan.select_server("a")
    assert scan.index.covered is not None
    scan.select_server("b")
    assert scan.index.find_last_statement(T, (7, 4)) is None
    assert scan.index.covered is None


def test_names_of_log_files_go_on_beyond_their_digits() -> None:
    assert NAMES(8) == "binlog.000008"
    assert NAMES(1234567) == "binlog.1234567"


# --- what a reading proves

TABLE = Table(
    db="bank", name="t", columns=(Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
     ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_a_definition_is_proven_exactly_if_the_catalogue_shows_what_was_in_force(seed: int) -> None:
    """A history of definitions, a reading somewhere in it, and every place of the log asked for: the model
    decides."""
    randomness = random.Random(seed)
    changes = sorted(randomness.sample(range(10, 1000, 10), 5))
    read_at = randomness.randrange(0, 1010, 10)  # the catalog shows what the last change before this made
    end = read_at + randomness.choice([0, 10, 50])  # the log's end, asked for after the reading
    index = StatementIndex()
    for at in changes:
        index.add_statement((7, at), [TouchedTable(T)])
    found = {T: ExaminedTable(TABLE, None)}
    for place in range(0, end, 5):
        in_force = [at for at in changes if at <= place]
        shown = [at for at in changes if at < read_at]
        proof = judge_definitions(index, (7, place), (7, end), found)[T]
        if isinstance(proof, ProvenDefinition):
            assert in_force[-1:] == shown[-1:] or place >= read_at, "what is shown was in force there"
        elif place < read_at:
            assert any(place < at < end for at in changes)
        _refuted(index, (7, place), changes)


def _refuted(index: StatementIndex, place: LogPoint, changes: list[int]) -> None:
    later = [at for at in changes if at > place[1]]
    assert dict(yield_refuted_tables(index, place, [T])) == (
        {T: UnprovenDefinition((7, later[-1]))} if later else {}
    )


def test_what_is_missing_or_unfit_is_proven_too() -> None:
    index = StatementIndex()
    found = {T: MISSING, ("bank", "u"): ExaminedTable(None, Problem("table bank.u is odd", "exclude it"))}
    assert judge_definitions(index, (7, 4), (7, 9), found) == {
        T: ProvenDefinition(None, None),
        ("bank", "u"): ProvenDefinition(None, Problem("table bank.u is odd", "exclude it")),
    }  # fmt: skip


def test_the_callable_of_a_beat_may_end_a_scan() -> None:
    """That is how capture stops while a long log is read."""

    class StoppedError(Exception):
        pass

    def beat() -> None:
        raise StoppedError

    stop: Callable[[], None] = beat
    server = AlterLog(100)
    with pytest.raises(StoppedError):
        scan_of(server).cover_range((7, 4), (7, server.end), NAMES, SERVER, stop)
    assert server.dumps[0].closed
