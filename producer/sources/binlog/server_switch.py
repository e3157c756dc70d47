"""Continues a source's log at another of its servers: asks that server, and searches its log (rules:
producer/sources/binlog/resume_search.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from producer.errors import SourceRefusedError, TransientSourceError
from producer.sources.binlog.assembly import TransactionBuffer
from producer.sources.binlog.binlog_log import BinlogLog
from producer.sources.binlog.hosts import find_unapplied
from producer.sources.binlog.proven_log import ProvenLog
from producer.sources.binlog.resume_search import GtidFile, GtidLogSearch, shorten_gtids
from producer.sources.binlog.unlogged_xa import require_logged_xa
from producer.sources.catalog import Catalog
from producer.sources.changes import LogStart, ServerSwitch, load_prepared
from schemas.findings import START_OVER
from schemas.wire.position import LogPoint, parse_binlog_file_number
from schemas.wire.records import Identity, StoredPosition


def resume_other_log(
    catalog: Catalog, log: ProvenLog, stored: StoredPosition, beat: Callable[[], None]
) -> LogStart:
    """Return the place at which capture of `stored` continues in the log of another server.

    Raises SourceRefusedError, TransientSourceError (also while the server has yet to apply what it has
    received), and pymysql errors.
    """
    rules, parse = catalog.session.flavour.failover, catalog.session.flavour.captured_gtids
    has_gtids = stored.identity.gtid_set or stored.began is not None  # a failover may have lost all of them
    if not has_gtids or not catalog.server.has_failover_setting():
        raise SourceRefusedError(
            f"the source's new server cannot continue the log, because {rules.without}",
            f"{rules.remedy}, and {START_OVER}",
        )
    waits_for = find_unapplied(catalog)  # before its GTIDs: those are complete if it waits for nothing
    identity = catalog.server.read_identity()
    require_logged_xa(catalog, identity.version, None)
    captured = parse(stored.identity.gtid_set or "")
    executed, logged, unshown, _ = catalog.server.read_executed(captured)
    lacking = captured.subtract(executed)
    if waits_for is not None and lacking.count():
        raise TransientSourceError(
            f"the source's new server lacks captured transactions ({shorten_gtids(lacking)}), and may "
            f"still get them: {waits_for}"
        )
    search = _make_search(catalog, log, stored, beat)
    place = search.find_resume_place(captured, logged)
    prepared = {**(place.prepared or {}), **search.locate_prepared(load_prepared(stored), executed)}
    switch = ServerSwitch(
        executed, waits_for is None, place.passed, prepared, place.missed, place.ahead, unshown
    )
    reached = place.count_reached(captured.intersect(executed))
    return LogStart(
        place.file, place.pos, replace(identity, gtid_set=str(reached) or None),
        place.evidence.proofs or log.read_head_proof(place.file), stored.ts_ms, switch,
    )  # fmt: skip


def complete_gtids(catalog: Catalog, log: ProvenLog, start: LogStart, settings: dict[str, Any]) -> Identity:
    """Return the identity of `start` with exactly the GTIDs before its place.

    The server may have logged transactions there after it was asked for its GTIDs, or had not counted them as
    executed. `settings`: pymysql's, of the server.
    """
    flavour, identity = catalog.session.flavour, start.identity
    found, rules = flavour.captured_gtids(identity.gtid_set or ""), flavour.failover
    if rules.read_gtids_at is not None:
        last = rules.read_gtids_at(catalog.session.run_query, start.file, start.pos)
        found.add_all(flavour.captured_gtids(last))
    elif rules.find_unexecuted is not None:
        first = rules.find_unexecuted(settings, identity.gtid_set or "")
        for gtid in _list_logged(catalog, log, start, first):
            found.add_logged(gtid)
    return replace(identity, gtid_set=str(found) or None)


def _list_logged(catalog: Catalog, log: ProvenLog, start: LogStart, first: LogPoint | None) -> list[str]:
    """Return the GTIDs between `first` and the place of `start`; `first` None: there are none."""
    end = (parse_binlog_file_number(start.file), start.pos)
    if first is None or first >= end:
        return []
    names = {parse_binlog_file_number(file.name): file.name for file in catalog.server.log_files()}
    make_comparison = catalog.session.flavour.failover.compare_log
    search = GtidLogSearch(lambda: (), _make_opener(catalog, log, start.identity), end, make_comparison)
    return search.list_logged_gtids(first, names[first[0]])


def _make_search(
    catalog: Catalog, log: ProvenLog, stored: StoredPosition, beat: Callable[[], None]
) -> GtidLogSearch:
    flavour = catalog.session.flavour
    end = catalog.server.log_end()  # after the GTIDs: the log has all of them up to there
    if end is None:
        raise SourceRefusedError("the source has no binary log", "set log_bin and restart it")

    def list_files() -> Iterator[GtidFile]:
        for name, before in catalog.server.list_gtid_files():
            beat()
            yield GtidFile(name, flavour.captured_gtids(before))

    point = (parse_binlog_file_number(end[0]), end[1])
    return GtidLogSearch(
        list_files, _make_opener(catalog, log, stored.identity), point, flavour.failover.compare_log, beat
    )


def _make_opener(
    catalog: Catalog, log: ProvenLog, identity: Identity
) -> Callable[[str, int, Callable[[str, str], bool]], BinlogLog]:
    def open_log(file: str, pos: int, captured: Callable[[str, str], bool]) -> BinlogLog:
        none = replace(identity, gtid_set=None)
        record = StoredPosition(source="", gen=0, epoch=0, file=file, pos=pos, identity=none, ts_ms=0)
        return BinlogLog(catalog.session.flavour, record, captured, log.open_at, TransactionBuffer(captured))

    return open_log
