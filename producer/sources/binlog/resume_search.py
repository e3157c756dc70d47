"""Finds the place in another server's log at which capture continues, by GTIDs (docs/adr/0047).

Invariants, with *captured* (the GTIDs of the position record), *executed* (those of the server) and *shared*
(in both):

1. Every shared transaction is before the place, or listed (`ResumePlace.ahead`): MariaDB's domains have
   another order in each log. A transaction that is not captured, and precedes a captured one where all logs
   have the same order, is listed (`ResumePlace.passed`): it is errant. No other one that is not captured is
   before the place.
2. The search begins in a file whose Previous_gtids are all captured, so nothing that is not captured is
   before it. If there is none, the source is refused: the log no longer has transactions that Kafka lacks.
3. The place is the end of a transaction, or the beginning of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from producer.definitions.index import EVERY_TABLE, yield_touched_tables
from producer.errors import SourceRefusedError, TableStoppedError, TransientSourceError
from producer.sources.binlog.binlog_dump import BEGIN
from producer.sources.changes import (
    Barrier,
    Boundary,
    Evidence,
    OpenXa,
    PassedTransaction,
    PreparedTransaction,
    TableName,
)
from producer.sources.mysql.mysql_gtids import GtidSet, LogComparison
from producer.statements import ddl
from schemas.findings import START_OVER
from schemas.wire.position import LogPoint, parse_binlog_file_number
from schemas.wire.records import PreparedPlace

_WAIT_S = 1.0
_SHOWN = 400
"""Characters of a GTID set in a message."""


class ReadLog(Protocol):
    """A log that is read from a file's beginning: producer.sources.binlog.binlog_log.BinlogLog."""

    @property
    def point(self) -> tuple[str, int]: ...
    @property
    def inside(self) -> bool: ...
    def read_changes(self, timeout: float, /) -> Iterator[object]: ...
    def keep_evidence(self, file: str, pos: int, /) -> None: ...
    def find_evidence(self) -> Evidence: ...
    def close(self) -> None: ...


OpenLog = Callable[[str, int, Callable[[str, str], bool]], ReadLog]
"""(file, offset, captured) → the log from there on."""


class GtidFile(NamedTuple):
    """A file of the log. `before`: the GTIDs of all that is before it, by its Previous_gtids event."""

    name: str
    before: GtidSet


class ResumePlace(NamedTuple):
    """The place at which capture continues. `evidence`: the proof of the log there; empty at a file's
    beginning. `passed_before`: the GTIDs of those of `passed` that precede the place. `missed`, `ahead`: see
    ServerSwitch; `first_ahead`: the first of `ahead` of each server (and domain). `prepared`: XA transactions
    that are open there and began in the part that was read; None: those of the record are open.
    """

    file: str
    pos: int
    evidence: Evidence
    passed: tuple[PassedTransaction, ...]
    missed: GtidSet | None = None
    ahead: tuple[PassedTransaction, ...] = ()
    passed_before: tuple[str, ...] = ()
    first_ahead: tuple[str, ...] = ()
    prepared: OpenXa | None = None

    def count_reached(self, shared: GtidSet) -> GtidSet:
        """Return all transactions before the place. `shared`: the captured ones that the server has."""
        for gtid in self.first_ahead:
            shared.remove_from(gtid)
        for gtid in self.passed_before:
            shared.add_logged(gtid)
        return shared


class _Ended(NamedTuple):
    """A transaction of the log: its end, and the tables that it may have changed (None: not known)."""

    boundary: Boundary
    tables: frozenset[TableName] | None


class _Step(NamedTuple):
    """A place between two transactions of the part that is read. `number`: of transactions before it."""

    number: int
    file: str
    pos: int
    evidence: Evidence
    prepared: OpenXa


@dataclass(slots=True)
class _Region:
    """The part of the new log up to the last captured transaction. `captured`: of the position record.

    `open`: the transactions that are not captured, by the part of the log that has the same order everywhere
    (`GtidSet.name_order`), as long as no captured one of that part follows; with the step before each.
    """

    captured: GtidSet
    here: _Step
    end: _Step
    passed: list[tuple[int, PassedTransaction]] = field(default_factory=list)
    open: dict[str, list[tuple[_Step, PassedTransaction]]] = field(default_factory=dict)
    ahead: list[tuple[int, PassedTransaction]] = field(default_factory=list)

    def add_transaction(self, gtid: str, ended: _Ended, evidence: Callable[[_Step], Evidence]) -> None:
        """Add the next transaction. `evidence`: returns the proof of the log at a step."""
        order, at = self.captured.name_order(gtid), ended.boundary
        before = self.here
        self.here = _Step(before.number + 1, at.file, at.pos, Evidence((), None), at.prepared)
        if gtid in self.captured:
            self.passed += [(step.number, each) for step, each in self.open.pop(order, ())]
            self.end = self.here
            if self.open:
                self.ahead.append((before.number, PassedTransaction(gtid, ended.tables)))
            return
        if order not in self.open:
            before = before._replace(evidence=evidence(before))
        self.open.setdefault(order, []).append((before, PassedTransaction(gtid, ended.tables)))

    def find_place(self, missed: GtidSet) -> ResumePlace:
        """Return the place: before the first transaction that is to be published, or after the last captured
        one."""
        begins = [each[0][0] for each in self.open.values()]
        at = min((self.end, *begins), key=lambda step: step.number)
        ahead = tuple(each for number, each in self.ahead if number >= at.number)
        first = dict[str, str]()
        for each in ahead:
            first.setdefault(self.captured.split_gtid(each.gtid)[0], each.gtid)
        passed = sorted(self.passed, key=lambda each: each[0])
        return ResumePlace(
            at.file, at.pos, at.evidence, tuple(each for _, each in passed),
            missed if missed.count() else None, ahead,
            tuple(each.gtid for number, each in passed if number < at.number),
            tuple(first.values()), at.prepared if first else None,
        )  # fmt: skip


class GtidLogSearch:
    """Searches a server's log for transactions.

    `files`: returns its files, the newest first, each read only when it is asked for. `end`: the log's end,
    read after the server's GTIDs. `compare_log`: see FailoverRules. `beat`: called repeatedly; may raise.
    """

    def __init__(
        self,
        files: Callable[[], Iterable[GtidFile]],
        open_log: OpenLog,
        end: LogPoint,
        compare_log: Callable[[Any, Any, Any], LogComparison],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._files, self._open_log, self._end, self._beat = files, open_log, end, beat
        self._compare_log = compare_log

    def find_resume_place(self, captured: GtidSet, logged: GtidSet) -> ResumePlace:
        """Return the place at which capture continues. `logged`: the GTIDs of the log. Raises
        SourceRefusedError, and the errors of a log.
        """
        file = self._choose_file(captured)
        comparison = self._compare_log(captured, file.before, logged)
        begin = _Step(0, file.name, BEGIN, Evidence((), None), {})
        if comparison.is_complete():
            return ResumePlace(file.name, BEGIN, begin.evidence, ())
        region, names = _Region(captured, begin, begin), set[TableName]()

        def note_name(db: str, table: str) -> bool:
            names.add((db, table))
            return False

        log = self._open_log(file.name, BEGIN, note_name)

        def prove(step: _Step) -> Evidence:
            log.keep_evidence(step.file, step.pos)
            return log.find_evidence() if step.number else begin.evidence

        try:
            for ended in self._read_transactions(log, names):
                gtid = ended.boundary.header.gtid
                if gtid is None:
                    raise _build_anonymous_error(ended.boundary)
                comparison.accept(gtid)
                region.add_transaction(gtid, ended, prove)
                if comparison.is_complete():
                    break
            else:
                self._require_complete(comparison)
            if region.end is region.here:
                region.end = region.end._replace(evidence=prove(region.end))
        finally:
            log.close()
        return region.find_place(comparison.missed)

    @staticmethod
    def _require_complete(comparison: LogComparison) -> None:
        """Raise SourceRefusedError if the log ended before captured transactions that the server has."""
        if not (count := comparison.left.count()):
            return
        raise SourceRefusedError(
            f"the source's new server counts {count} captured transactions as executed that its log does not "
            f"have ({shorten_gtids(comparison.left)})",
            f"set log_replica_updates (on MariaDB log_slave_updates) to ON on all servers of the source, and "
            f"{START_OVER}",
        )

    def locate_prepared(self, prepared: OpenXa, executed: GtidSet) -> OpenXa:
        """Return the XA transactions that are open, with their places in this log.

        One that the server lacks is left out: it never ends there. One whose PREPARE is not found has no
        place.
        """
        found: dict[str, PreparedTransaction] = {}
        for xid, each in prepared.items():
            gtid = each.place.gtid if each.place is not None else ""
            if gtid and gtid not in executed:
                continue
            place = self._find_prepare(xid, gtid) if gtid else None
            if place is not None and each.place is not None:
                place = replace(place, altered=each.place.altered)
            found[xid] = PreparedTransaction(each.tables, place)
        return found

    def list_logged_gtids(self, start: LogPoint, name: str) -> list[str]:
        """Return the GTIDs of the transactions between `start`, in file `name`, and the end."""
        log = self._open_log(name, start[1], lambda _db, _table: False)
        try:
            return [
                gtid
                for each in self._read_transactions(log, set())
                if (gtid := each.boundary.header.gtid) is not None
            ]
        finally:
            log.close()

    def _choose_file(self, captured: GtidSet) -> GtidFile:
        """Return the newest file with nothing before it that is not captured."""
        oldest: GtidFile | None = None
        for file in self._files():
            if captured.covers(file.before):
                return file
            oldest = file
        if oldest is None:
            raise TransientSourceError("the source's new server lists no binlog files")
        purged = oldest.before.subtract(captured)
        raise SourceRefusedError(
            f"the source's new server has purged transactions that Kafka lacks ({shorten_gtids(purged)}): "
            f"its oldest file is {oldest.name}",
            "keep the log longer on all servers of the source (binlog_expire_logs_seconds), do not write to "
            f"replicas directly, and {START_OVER}",
        )

    def _find_prepare(self, xid: str, gtid: str) -> PreparedPlace | None:
        file = next((each for each in self._files() if gtid not in each.before), None)
        if file is None:
            return None
        log = self._open_log(file.name, BEGIN, lambda _db, _table: False)
        try:
            for ended in self._read_transactions(log, set()):
                if ended.boundary.header.gtid == gtid:
                    prepared = ended.boundary.prepared.get(xid)
                    return prepared.place if prepared is not None else None
        finally:
            log.close()
        return None

    def _read_transactions(self, log: ReadLog, names: set[TableName]) -> Iterator[_Ended]:
        """Yield the transactions up to the log's end. `names`: the log adds the tables that have rows."""
        unknown = False
        while True:
            for change in log.read_changes(_WAIT_S):
                if isinstance(change, TableStoppedError):
                    unknown = True
                elif isinstance(change, Barrier):
                    touched = _list_tables(change)
                    unknown = unknown or touched is None
                    names.update(touched or ())
                elif isinstance(change, Boundary):
                    yield _Ended(change, None if unknown else frozenset(names))
                    names.clear()
                    unknown = False
            file, pos = log.point
            if not log.inside and (parse_binlog_file_number(file), pos) >= self._end:
                return
            self._beat()


def shorten_gtids(gtids: GtidSet) -> str:
    """Return a GTID set as a message shows it."""
    text = str(gtids)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({gtids.count()} transactions)"


def _list_tables(barrier: Barrier) -> set[TableName] | None:
    """Return the tables that a statement may change; None: not known."""
    if isinstance(barrier.statement.kind, ddl.DmlStatement):
        return None
    tables = {each.name for each in yield_touched_tables(barrier.statement.query)}
    is_open = any(name == EVERY_TABLE or (name[0] and not name[1]) for name in tables)
    return None if is_open else {name for name in tables if name[0]}


def _build_anonymous_error(at: Boundary) -> SourceRefusedError:
    return SourceRefusedError(
        f"the log of the source's new server has a transaction without GTID "
        f"({at.header.file}:{at.header.pos}): whether it was captured cannot be known",
        f"set gtid_mode to ON on all servers of the source, and {START_OVER}",
    )
