"""What proves that a log is the one that was captured: digests of events, read again from their own start,
and GTIDs."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pymysql
import pytest

from producer.binlog_format import log_event as log
from producer.binlog_format.log_event import BinlogEvent
from producer.errors import SourceRefusedError, TransientSourceError
from producer.sources.binlog import proven_log
from producer.sources.binlog.flavour import BinlogFlavour
from producer.sources.binlog.log_proof import (
    ProofCollector,
    build_proofs,
    check_event,
    digest_event,
    find_exact_proof,
    select_remaining_proofs,
)
from producer.sources.binlog.log_stream import LogStream
from producer.sources.binlog.proven_log import ProvenLog, log_beginning, resume_proven_log
from producer.sources.changes import LogFile
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.sources.mariadb.mariadb_gtids import MariadbGtidSet
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from schemas.wire.records import Identity, LogProof, StoredPosition

EVENT = BinlogEvent(log.XID, 1_700_000_000, 7, 0, "b.000003", 100, 131, b"\x0d" + bytes(7))


def test_a_digest_tells_apart_what_a_server_wrote() -> None:
    same = {EVENT, EVENT._replace(flags=1), EVENT._replace(end=127, file="b.000003")}
    assert len({digest_event(event) for event in same}) == 1, (
        "flags and the checksum's bytes are not the event"
    )
    other = [
        EVENT._replace(body=b"\x0e" + bytes(7)), EVENT._replace(timestamp=EVENT.timestamp + 1),
        EVENT._replace(start=101), EVENT._replace(server_id=8), EVENT._replace(type=log.QUERY),
        EVENT._replace(body=EVENT.body + b"\0"),
    ]  # fmt: skip
    assert len({digest_event(event) for event in [EVENT, *other]}) == len(other) + 1


@pytest.mark.parametrize(
    "seen",
    [
        EVENT._replace(body=b"\x0e" + bytes(7)), EVENT._replace(start=99), EVENT._replace(file="b.000004"),
        EVENT._replace(end=135),
    ],
)  # fmt: skip
def test_another_event_at_the_place_is_refused(seen: BinlogEvent) -> None:
    (proof,) = build_proofs([EVENT])
    check_event(proof, EVENT._replace(flags=1))
    with pytest.raises(SourceRefusedError, match=r"not the one that was captured.*start over"):
        check_event(proof, seen)


def test_purged_proofs_are_passed_over_while_one_is_left() -> None:
    before, head = build_proofs([EVENT, EVENT._replace(file="b.000004", start=256, end=285)])
    assert select_remaining_proofs([head, before], "b.000002") == [head, before]
    assert select_remaining_proofs([head, before], "b.000004") == [head]
    assert select_remaining_proofs([], "b.000004") == [], "a record of a version that kept none"
    with pytest.raises(SourceRefusedError, match=r"nothing proves.*start over"):
        select_remaining_proofs([head, before], "b.000005")
    assert find_exact_proof([head, before], "b.000003", 131) is before
    assert find_exact_proof([head, before], "b.000004", 300) is None


# --- the stream that begins with the proven event


def packet(
    kind: int, body: bytes, end: int, *, flags: int = 0, checksum: bool = True, time: int = 1
) -> bytes:
    size = 19 + len(body) + (4 if checksum else 0)
    event = struct.pack("<IBIIIH", time, kind, 7, size, end, flags) + body
    return b"\0" + event + (zlib.crc32(event).to_bytes(4, "little") if checksum else b"")


def rotate(name: str, *, end: int = 0, checksum: bool = True) -> bytes:
    flags, time = (0, 1) if end else (0x20, 0)
    body = struct.pack("<Q", 4) + name.encode()
    return packet(log.ROTATE, body, end, flags=flags, time=time, checksum=checksum)


def description(*, end: int = 0, checksum: bool = True) -> bytes:
    """The body's checksum is there in any case; the byte before it names the algorithm."""
    return packet(log.FORMAT_DESCRIPTION, bytes(20) + bytes([checksum]), end)


class Recording:
    """Packets, read by read; then nothing comes any more."""

    checksum = True
    received_bytes = 0

    def __init__(self, *reads: list[bytes]) -> None:
        self._reads = iter(reads)

    def read_packets(self, _timeout: float) -> list[bytes]:
        return next(self._reads, [])

    def close(self) -> None: ...


def clock() -> Callable[[], float]:
    ticks: Iterator[int] = iter(range(10_000))
    return lambda: float(next(ticks))


def stream(*reads: list[bytes], pos: int = 100) -> LogStream:
    return LogStream(Recording(*reads), "b.000003", pos, clock())


@pytest.mark.parametrize("checksum", [True, False])
def test_the_stream_goes_on_behind_the_proven_event(checksum: bool) -> None:
    end = 131 if checksum else 127
    reads = (
        [rotate("b.000003", checksum=checksum)],
        [description(checksum=checksum), packet(log.XID, EVENT.body, end, checksum=checksum)],
    )
    found = stream(*reads, [packet(log.STOP, b"", end + 23, checksum=checksum)])
    (proof,) = build_proofs([EVENT._replace(timestamp=1, end=end)])
    found.require_proven_event(proof)
    assert found.point == ("b.000003", end)
    assert [event.type for event in found.read_events(1)] == [log.STOP], (
        "the proven event does not come again"
    )
    (event,) = stream(*reads).find_evidence("b.000003", end) or found.find_evidence("b.000003", end + 23)
    assert event.type == log.STOP


def test_what_came_with_the_proven_event_is_not_lost() -> None:
    found = stream(
        [description(), packet(log.XID, EVENT.body, 131), packet(log.STOP, b"", 154)],
        [packet(log.STOP, b"", 177)],
    )
    found.require_proven_event(build_proofs([EVENT._replace(timestamp=1)])[0])
    assert [event.end for event in found.find_evidence("b.000003", 131)] == [131]
    assert [event.end for event in found.read_events(1)] == [154]
    assert [event.end for event in found.read_events(1)] == [177]


def test_a_file_s_last_event_proves_too() -> None:
    closing = BinlogEvent(log.ROTATE, 1, 7, 0, "b.000003", 131, 171, struct.pack("<Q", 4) + b"b.000004x")
    name = "b.000004"
    first = stream([rotate(name, end=171)], pos=131)
    event = first.read_first_event()
    assert (event.file, event.end, event.type) == ("b.000003", 171, log.ROTATE)
    proof = build_proofs([event])[0]
    again = stream(
        [rotate("b.000003"), description(), rotate(name, end=171), rotate(name), description(end=256)],
        pos=131,
    )
    again.require_proven_event(proof)
    assert again.point == (name, 256)
    assert closing.file == proof.file


def test_at_a_file_s_beginning_the_file_before_proves_as_well() -> None:
    found = stream(
        [
            packet(log.XID, EVENT.body, 131),
            rotate("b.000004", end=171),
            rotate("b.000004"),
            description(end=256),
        ],
        [packet(163, bytes(6), 285)],
        [packet(log.XID, EVENT.body, 316)],
    )
    found.read_events(1)
    assert found.find_evidence("b.000004", 256) == (), (
        "a format description proves nothing: servers rewrite it"
    )
    found.read_events(1)
    assert [(event.file, event.type) for event in found.find_evidence("b.000004", 285)] == [
        ("b.000004", 163), ("b.000003", log.ROTATE),
    ]  # fmt: skip
    found.read_events(1)
    assert [(event.file, event.type) for event in found.find_evidence("b.000004", 316)] == [
        ("b.000004", log.XID)
    ]
    assert found.find_evidence("b.000004", 285) == (), "only what came last is kept"


def test_an_event_of_the_file_before_is_no_evidence_for_the_same_offset() -> None:
    found = stream(
        [
            packet(log.XID, EVENT.body, 256),
            rotate("b.000004", end=296),
            rotate("b.000004"),
            description(end=256),
        ]
    )
    found.read_events(1)
    assert found.point == ("b.000004", 256)
    assert found.find_evidence("b.000004", 256) == ()
    assert [event.file for event in found.find_evidence("b.000003", 256)] == ["b.000003"]


def test_what_is_no_event_at_the_place_is_another_history() -> None:
    broken = bytearray(packet(log.XID, EVENT.body, 131))
    broken[-1] ^= 1
    (proof,) = build_proofs([EVENT])
    with pytest.raises(SourceRefusedError, match="not the one that was captured"):
        stream([description(), bytes(broken)]).require_proven_event(proof)


def test_a_source_that_sends_only_heartbeats_is_not_waited_for() -> None:
    (proof,) = build_proofs([EVENT])
    beats = [[packet(log.HEARTBEAT, b"", 131)] for _ in range(1000)]
    with pytest.raises(TransientSourceError, match="no event"):
        stream(*beats).require_proven_event(proof)


# --- who opens it


CurrentFile = Callable[[], str | None]


class PlannedDumps:
    """What dumps from its places give: a stream, or an error of the driver. `opened`: where dumps were
    begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **at: list[bytes] | pymysql.MySQLError) -> None:
        self._at = {int(place.removeprefix("at_")): found for place, found in at.items()}
        self.opened: list[int] = []
        monkeypatch.setattr(proven_log, "open_stream", self._open)

    def _open(
        self,
        _settings: object,
        *,
        server_id: int,
        file: str,
        pos: int,
        find_current_file: CurrentFile,
        open_file: object,
    ) -> LogStream:
        self.opened.append(pos)
        found = self._at[pos]
        packets = Broken(found) if isinstance(found, pymysql.MySQLError) else Recording(found)
        return LogStream(packets, file, pos, clock(), find_current_file)


class Broken(Recording):
    def __init__(self, error: pymysql.MySQLError) -> None:
        super().__init__()
        self._error = error

    def read_packets(self, _timeout: float) -> list[bytes]:
        raise self._error


def fatal(text: str) -> pymysql.MySQLError:
    return pymysql.err.OperationalError(1236, text)


PROVEN = EVENT._replace(timestamp=1)
THERE = [description(), packet(log.XID, EVENT.body, 131)]
EARLIER = EVENT._replace(timestamp=1, start=50, end=81)
PURGED = fatal("Could not find first log file name in binary log index file")
FILES = [LogFile("b.000003", 500)]


def test_the_connection_that_is_read_from_is_the_one_that_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    dumps = PlannedDumps(monkeypatch, at_100=THERE)
    assert ProvenLog({}).open_at(build_proofs([PROVEN, EARLIER]), "b.000003", 131).point == ("b.000003", 131)
    assert dumps.opened == [100], "what proves the file before was asked for at the start"


def test_earlier_events_are_read_on_connections_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    dumps = PlannedDumps(monkeypatch, at_100=THERE, at_400=[], at_50=PURGED)
    found = ProvenLog({}).open_at(build_proofs([PROVEN, EARLIER]), "b.000003", 400)
    assert (found.point, dumps.opened) == (("b.000003", 400), [100, 50, 400])


@pytest.mark.parametrize(
    "error",
    [
        "Client requested master to start replication from impossible position",
        "binlog truncated in the middle of event",
    ],
)
def test_where_no_event_can_begin_there_is_another_history(
    monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    PlannedDumps(monkeypatch, at_100=fatal(error))
    with pytest.raises(SourceRefusedError, match=rf"not the one that was captured \({error}.*start over"):
        ProvenLog({}, lambda: "b.000003").require_proofs(record(build_proofs([PROVEN])), FILES)


@pytest.mark.parametrize(
    ("current", "kind"),
    [("b.000003", TransientSourceError), ("b.000004", SourceRefusedError), (None, SourceRefusedError)],
)
def test_an_event_that_the_server_is_still_writing_is_read_later(
    monkeypatch: pytest.MonkeyPatch, current: str | None, kind: type[Exception]
) -> None:
    """Capture ended at such an event. In a file that the server has closed its end never comes."""
    PlannedDumps(
        monkeypatch, at_100=THERE, at_400=fatal("binlog truncated in the middle of event; consider ...")
    )
    stream = ProvenLog({}, lambda: current).open_at(build_proofs([PROVEN]), "b.000003", 400)
    with pytest.raises(kind, match="binlog truncated in the middle of event"):
        stream.read_events(0)


def test_a_file_that_was_purged_just_now_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    PlannedDumps(monkeypatch, at_100=PURGED)
    with pytest.raises(SourceRefusedError, match="if the log was purged"):
        ProvenLog({}).require_proofs(record(build_proofs([PROVEN])), FILES)


def test_a_record_without_a_proof_gets_one_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    head = [description(), packet(163, bytes(6), 285)]
    PlannedDumps(monkeypatch, at_4=head)
    (proof,) = ProvenLog({}).require_proofs(record(), FILES)
    assert (proof.start, proof.end) == (256, 285)
    PlannedDumps(monkeypatch, at_4=[])
    assert ProvenLog({}).read_head_proof("b.000003") == (), "a file without an event"


class Catalogue:
    """What is asked of the source besides its log, by its session and of its server; `has`: whether it has
    executed the captured GTIDs."""

    def __init__(self, *, has: bool, flavour: BinlogFlavour = MYSQL_FLAVOUR) -> None:
        self.has, self.flavour = has, flavour
        self.session = self.server = self

    def read_identity(self) -> Identity:
        return Identity(server_uuid="u", server_id=1, version="11.4.5", gtid_set="u:1-3")

    def has_gtids(self, *_: object) -> bool:
        return self.has

    def read_time_ms(self) -> int:
        return 1

    def log_end(self) -> None: ...

    def log_files(self) -> list[LogFile]:
        return FILES


def test_gtids_under_way_are_no_reason_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """MySQL shows a transaction in its log before it has executed it; with semi-synchronous replication long
    before."""
    PlannedDumps(monkeypatch, at_100=THERE, at_50=[description(), packet(log.XID, EVENT.body, 81)])
    stored = record(build_proofs([PROVEN]), "u:1-9")
    source: Any = Catalogue(has=False)
    _, _, identity, proof, *_ = resume_proven_log(source, ProvenLog({}), stored)
    assert (identity.gtid_set, proof) == ("u:1-9", stored.proof)
    with pytest.raises(SourceRefusedError, match="no longer has transactions"):
        resume_proven_log(source, ProvenLog({}), record(build_proofs([EARLIER]), "u:1-9"))
    reset: Any = Catalogue(has=False, flavour=MARIADB_FLAVOUR)
    with pytest.raises(SourceRefusedError, match="no longer has transactions"):
        resume_proven_log(reset, ProvenLog({}), stored)


class Moved(Catalogue):
    """Another server has its name."""

    def read_identity(self) -> Identity:
        return msgspec.structs.replace(super().read_identity(), server_uuid="another")


def test_another_server_is_refused_though_its_log_has_the_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored copy of the source has its log, too, and goes its own way behind it."""
    PlannedDumps(monkeypatch, at_100=THERE)
    moved: Any = Moved(has=True)
    with pytest.raises(SourceRefusedError, match="another server than the one recorded"):
        resume_proven_log(moved, ProvenLog({}), record(build_proofs([PROVEN])))


def test_a_source_without_a_log_is_refused() -> None:
    source: Any = Catalogue(has=True)
    with pytest.raises(SourceRefusedError, match="has no binary log: set log_bin"):
        log_beginning(source, ProvenLog({}))


# --- what a record keeps


def record(proof: tuple[LogProof, ...] = (), gtids: str | None = None) -> StoredPosition:
    identity = Identity(server_uuid="u", server_id=1, version="9", gtid_set=gtids)
    return StoredPosition(
        source="s", gen=1, epoch=0, file="b.000003", pos=131, identity=identity, ts_ms=1, proof=proof
    )


def test_the_record_keeps_the_last_evidence_there_was() -> None:
    proofs = ProofCollector(
        record(old := build_proofs([EVENT._replace(start=50)])), MYSQL_FLAVOUR.captured_gtids
    )
    assert proofs.build_latest_proofs() == old
    proofs.keep_events(())
    assert proofs.build_latest_proofs() == old
    proofs.keep_events((EVENT,))
    assert proofs.build_latest_proofs() == build_proofs([EVENT])


def test_the_record_keeps_the_gtids_of_its_position() -> None:
    proofs = ProofCollector(record(gtids="a:1-5"), MYSQL_FLAVOUR.captured_gtids)
    proofs.record_gtid(None)
    proofs.record_gtid("a:6")
    proofs.record_gtid("b:1")
    assert proofs.gtid_set == "a:1-6,b:1"
    assert ProofCollector(record(), MARIADB_FLAVOUR.captured_gtids).gtid_set is None


def test_gtids_of_mariadb_keep_the_last_of_each_domain_and_server() -> None:
    found = MariadbGtidSet.parse("0-1-42,\n1-7-9")
    for gtid in ("0-1-43", "0-2-44", "1-7-10", "1-7-8"):
        found.add_logged(gtid)
    assert str(found) == "0-1-43,0-2-44,1-7-10"
    assert str(MariadbGtidSet.parse("")) == ""


@pytest.mark.parametrize("found", [[description(), packet(163, bytes(6), 285)], []])
def test_the_connection_that_a_file_s_first_event_is_read_on_is_closed(
    monkeypatch: pytest.MonkeyPatch, found: list[bytes]
) -> None:
    closed = []
    monkeypatch.setattr(LogStream, "close", lambda stream: closed.append(stream.point))
    PlannedDumps(monkeypatch, at_4=found)
    ProvenLog({}).read_head_proof("b.000003")
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("found", "error", "reported"),
    [
        (
            [description(), packet(log.XID, b"\x0e" + bytes(7), 131)],
            SourceRefusedError,
            "not the one that was captured",
        ),
        (PURGED, SourceRefusedError, "if the log was purged"),
        ([], TransientSourceError, "no event"),
        (pymysql.err.OperationalError(2013, "lost"), TransientSourceError, "lost"),
    ],
)
def test_the_connection_of_a_proof_that_fails_is_closed(
    monkeypatch: pytest.MonkeyPatch, found: Any, error: type[Exception], reported: str
) -> None:
    closed = []
    monkeypatch.setattr(LogStream, "close", lambda stream: closed.append(stream.point))
    PlannedDumps(monkeypatch, at_100=found)
    with pytest.raises(error, match=reported):
        ProvenLog({}).open_at(build_proofs([PROVEN]), "b.000003", 131)
    assert len(closed) == 1
