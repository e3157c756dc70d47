"""Continues a source's log at another of its servers: asks that server, and searches its log (rules:
producer/sources/binlog/resume_search.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from producer.errors import SourceRefusedError, TransientSourceError
from producer.sources.binlog.assembly import TransactionBuffer
from producer.sources.binlog.binlog_log import BinlogLog
from producer.sources.binlog.hosts import find_unapplied
from producer.sources.binlog.proven_log import ProvenLog
from producer.sources.binlog.resume_search import GtidFile, GtidLogSearch, shorten_gtids
from producer.sources.catalog import Catalog
from producer.sources.changes import LogStart, ServerSwitch, load_prepared
from producer.sources.mysql.mysql_gtids import GtidSet
from schemas.findings import START_OVER
from schemas.wire.position import LogPoint, parse_binlog_file_number
from schemas.wire.records import Identity, StoredPosition


def is_other_server(stored: StoredPosition, now: Identity) -> bool:
    """Return whether the server `now` is another one than the one recorded."""
    return stored.identity.server_uuid != now.server_uuid


def resume_other_log(
    catalog: Catalog, log: ProvenLog, stored: StoredPosition, beat: Callable[[], None]
) -> LogStart:
    """Return the place at which capture of `stored` continues in the log of another server.

    Raises SourceRefusedError, TransientSourceError (also while the server has yet to apply what it has
    received), and pymysql errors.
    """
    has_gtids = stored.identity.gtid_set or stored.began is not None  # a failover may have lost all of them
    if not has_gtids or catalog.server.read_variables().get("gtid_mode") != "ON":
        raise SourceRefusedError(
            "the source's new server cannot continue the log, because one of the two servers has no GTIDs",
            f"set gtid_mode to ON on all servers of the source, and {START_OVER}",
        )
    waits_for = find_unapplied(catalog)  # before its GTIDs: those are complete if it waits for nothing
    identity = catalog.server.read_identity()
    captured = GtidSet.parse(stored.identity.gtid_set or "")
    executed = GtidSet.parse(identity.gtid_set or "")
    lacking = captured.subtract(executed)
    if waits_for is not None and lacking.count():
        raise TransientSourceError(
            f"the source's new server lacks captured transactions ({shorten_gtids(lacking)}), and may "
            f"still get them: {waits_for}"
        )
    search = _make_search(catalog, log, stored, beat)
    place = search.find_resume_place(captured, executed)
    prepared = search.locate_prepared(load_prepared(stored), executed)
    switch = ServerSwitch(executed, waits_for is None, place.passed, prepared)
    reached = captured.intersect(executed)
    for each in place.passed:
        reached.add(each.gtid)
    return LogStart(
        place.file, place.pos, replace(identity, gtid_set=str(reached) or None),
        place.evidence.proofs or log.read_head_proof(place.file), stored.ts_ms, switch,
    )  # fmt: skip


def list_captured_gtids(
    catalog: Catalog, log: ProvenLog, start: LogStart, unexecuted: Callable[[str], LogPoint | None]
) -> Identity:
    """Return the identity of `start` with exactly the GTIDs before its place.

    The server may have logged transactions there that it had not counted as executed.
    """
    identity = start.identity
    end = (parse_binlog_file_number(start.file), start.pos)
    first = unexecuted(identity.gtid_set or "")
    if first is None or first >= end:
        return identity
    names = {parse_binlog_file_number(file.name): file.name for file in catalog.server.log_files()}
    found = GtidSet.parse(identity.gtid_set or "")
    search = GtidLogSearch(lambda: (), _make_opener(catalog, log, start.identity), end)
    for gtid in search.list_logged_gtids(first, names[first[0]]):
        found.add(gtid)
    return replace(identity, gtid_set=str(found) or None)


def _make_search(
    catalog: Catalog, log: ProvenLog, stored: StoredPosition, beat: Callable[[], None]
) -> GtidLogSearch:
    end = catalog.server.log_end()  # after the GTIDs: the log has all of them up to there
    if end is None:
        raise SourceRefusedError("the source has no binary log", "set log_bin and restart it")

    def list_files() -> Iterator[GtidFile]:
        for name, before in catalog.server.list_gtid_files():
            beat()
            yield GtidFile(name, GtidSet.parse(before))

    point = (parse_binlog_file_number(end[0]), end[1])
    return GtidLogSearch(list_files, _make_opener(catalog, log, stored.identity), point, beat)


def _make_opener(
    catalog: Catalog, log: ProvenLog, identity: Identity
) -> Callable[[str, int, Callable[[str, str], bool]], BinlogLog]:
    def open_log(file: str, pos: int, captured: Callable[[str, str], bool]) -> BinlogLog:
        none = replace(identity, gtid_set=None)
        record = StoredPosition(source="", gen=0, epoch=0, file=file, pos=pos, identity=none, ts_ms=0)
        return BinlogLog(catalog.session.flavour, record, captured, log.open_at, TransactionBuffer(captured))

    return open_log
