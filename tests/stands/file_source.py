"""A source that rowlock does not know: JSON lines in files are its log, a small file beside them its tables.

It follows docs/how-to/add-a-source.md. A folder holds `id` (whose log this is), `log.000001`, … and
`tables.json`. A line of the log is a transaction: `{"ts": ms, "do": [{"row": table, "before": …, "after": …}
| {"define": Table} | {"truncate": table} | {"drop": table}]}`. `tables.json` is what a SELECT sees: all
tables, and the place of the log up to which they have it. A position is (log file, offset of a line)."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from producer.binlog_format.errors import DefinitionMismatch
from producer.decoders.envelope import SourceContext, TransactionContext
from producer.definitions.requests import DefinitionPlace, Proof, ProvenDefinition
from producer.errors import SourceRefusedError
from producer.sources.changes import (
    Barrier,
    Boundary,
    Evidence,
    LogMoment,
    LogStart,
    TimedEnd,
    TransactionHeader,
)  # fmt: skip
from producer.sources.chunk_data import ChunkFailed, ChunkRead, LowWatermark, ReadChunk
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.protocols import LogChange, SourceCheckResult, SourceDatabase
from producer.sources.survey import MISSING, ExaminedTable
from producer.statements.judgement import StatementVerdict
from producer.tables import TableName, TableState
from schemas.clock import read_clock_ms
from schemas.config.kinds.sources import SourceKind
from schemas.config.model import Config
from schemas.findings import START_OVER, Finding, merge_findings
from schemas.io.mysql_catalog import is_selected
from schemas.table.model import Key, Row, Table
from schemas.table.names import EXACT
from schemas.wire.codec import encode_event_value
from schemas.wire.event import ENVELOPE_VERSION, EventEnvelope, Source, Transaction
from schemas.wire.position import LogPoint, Position, parse_binlog_file_number
from schemas.wire.records import Identity, LogProof, StoredPosition

KIND = SourceKind("tests.stands.file_source", "file_source")
DB = "files"
Image = dict[str, Any] | None
Records = list[tuple[bytes, bytes]]
#: What a line calls a statement → what that is, and what it does to rows and to the definition.
_STATEMENTS: dict[str, tuple[Any, Any, Any]] = {
    "define": ("alter", "kept", "changed"), "truncate": ("truncate", "emptied", "kept"),
    "drop": ("drop", "gone", "changed"),
}  # fmt: skip


class Line(NamedTuple):
    """A transaction of the log, and where it starts and ends."""

    file: str
    start: int
    end: int
    text: bytes

    @property
    def proof(self) -> LogProof:
        return LogProof(file=self.file, start=self.start, end=self.end, digest=sha256(self.text).hexdigest())


def log_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("log.*"))


def lines(folder: Path, file: str, pos: int) -> Iterator[Line]:
    """Yield the whole lines from a place on, those of later files too."""
    for path in (each for each in log_files(folder) if each.name >= file):
        at = pos if path.name == file else 0
        with path.open("rb") as log:
            log.seek(at)
            while (text := log.readline()).endswith(b"\n"):
                yield Line(path.name, at, at := at + len(text), text)


@dataclass
class FileRows:
    """`LoggedRows`: one row of a transaction."""

    header: TransactionHeader
    table: TableName
    before: Image
    after: Image
    row: int
    tail: Position | None = None

    def build_records(self, table: TableState, source: SourceContext, at: TransactionContext) -> Records:
        names = table.table.column_names
        for image in (self.before, self.after):
            if image is not None and tuple(image) != names:
                raise DefinitionMismatch(f"{DB}.{table.table.name}: a row has the columns {', '.join(image)}")
        tail = table.topic.tail
        at.total_order += 1
        position = (source.epoch, at.file_number, at.pos, self.row)
        event = EventEnvelope(
            op="c" if self.before is None else "d" if self.after is None else "u", before=self.before,
            after=self.after,
            source=Source(
                version=ENVELOPE_VERSION, connector=source.connector, name=source.name, ts_ms=at.ts_ms,
                snapshot="false", db=self.table[0], table=self.table[1], server_id=at.server_id, gtid=None,
                file=at.file, pos=at.pos, row=self.row, position=position, prev=tail.last, gen=source.gen,
            ),
            transaction=Transaction(id=at.id, total_order=at.total_order, last=False), ts_ms=at.made_ms,
        )  # fmt: skip
        self.tail, tail.last = tail.last, position
        key = {name: (self.after or self.before or {})[name] for name in table.table.key.columns}
        return [(msgspec.json.encode(key), encode_event_value(event))]

    def withdraw_rows(
        self, table: TableState, _: Any, at: TransactionContext, records: Records, keep: int
    ) -> None:
        if keep < len(records):
            del records[keep:]
            at.total_order -= 1
            table.topic.tail.last = self.tail

    def list_keys(self, table: TableState, _source: SourceContext) -> Sequence[Key]:
        names = table.table.key.columns
        return [tuple(image[name] for name in names) for image in (self.before, self.after) if image]


class FileLog:
    """`SourceLog`: a line is a whole transaction, so nothing is ever held."""

    delivered, objects_changed = None, (0, 0)

    def __init__(self, folder: Path, record: StoredPosition, captured: Callable[[str, str], bool]) -> None:
        self._folder, self._captured = folder, captured
        self.point = (record.file, record.pos)
        self.heard = self.begun = self.inside = False
        self._proofs = record.proof
        self._last: Line | None = None
        self.moment = LogMoment(*self.point, 0)

    def read_changes(self, _timeout: float) -> Iterator[LogChange | None]:
        """Yield what the next line brings."""
        line = next(lines(self._folder, *self.point), None)
        self.heard = self.begun = self.inside = line is not None
        if line is None:
            return
        found, self._last, self.point = json.loads(line.text), line, (line.file, line.end)
        header = TransactionHeader(line.file, line.start, found["ts"], 1, None)
        self.moment = LogMoment(line.file, line.start, found["ts"])
        for row, change in enumerate(found["do"]):
            if "row" not in change:
                yield _barrier(header, change, row)
            elif self._captured(DB, change["row"]):
                yield FileRows(header, (DB, change["row"]), change["before"], change["after"], row)
        self.begun = self.inside = False
        yield Boundary(header, line.file, line.end)

    def record_position_count(self, rows: int) -> None: ...
    def skip_uncaptured(self, rows: Any) -> None: ...
    def record_transaction_end(self, boundary: Boundary) -> None: ...
    def close(self) -> None: ...

    def keep_evidence(self, file: str, pos: int) -> None:
        if self._last is not None and (self._last.file, self._last.end) == (file, pos):
            self._proofs = (self._last.proof,)

    def find_evidence(self) -> Evidence:
        return Evidence(self._proofs, None)


def _barrier(header: TransactionHeader, change: dict[str, Any], row: int) -> Barrier:
    """A statement, and what it does: the log says so, nothing has to be told from its text."""
    ((what, of),) = change.items()
    name, (action, rows, definition) = (DB, of["name"] if what == "define" else of), _STATEMENTS[what]
    verdict = StatementVerdict(name, rows, definition)
    return Barrier.build_from_verdict(header, f"{what} {name[1]}", action, verdict, row)


class FileReader:
    """`ChunkQueue`: reads when it is asked, and answers at the second look; by then tables may be others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: deque[ChunkRead | ChunkFailed | None] = deque()

    def submit(self, request: ReadChunk) -> None:
        seen, table = tables(self._folder), request.table
        found = seen["tables"].get(table.name)
        if found is None or msgspec.convert(found["definition"], Table) != table:
            self._answers += [None, ChunkFailed(request.request, "the table is another one now")]
            return
        at = table.find_ordinals(table.key.columns)
        keyed: dict[Any, Row] = {tuple(row[i] for i in at): row for row in map(tuple, found["rows"])}
        keys = sorted(key for key in keyed if request.after is None or key > request.after)
        rows = [keyed[key] for key in keys[: request.limit]]
        low = _point(seen["file"], seen["pos"])
        self._answers += [None, ChunkRead(request.request, rows, LowWatermark(low, None), low)]

    def poll_answer(self) -> ChunkRead | ChunkFailed | None:
        answer = self._answers.popleft() if self._answers else None
        return answer._replace(high=_point(*end(self._folder))) if isinstance(answer, ChunkRead) else answer

    def close(self) -> None: ...


class FileSource:
    """`SourceDatabase`, and its own `DefinitionProver`: every definition is in the log."""

    connector, names = "file", EXACT

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.definitions = self.tables = self

    def check_source(self) -> SourceCheckResult:
        if not (self._folder / "id").exists():
            missing = Finding("error", "source", f"{self._folder} is no log", "make it")
            return SourceCheckResult([missing], None)
        return SourceCheckResult([], self.list_table_names(["*.*"]))

    def require_usable(self) -> None:
        if found := self.check_source().findings:
            raise SourceRefusedError.from_problem(merge_findings(found))

    def open_source(self, beat: Callable[[], None]) -> None: ...
    def close(self) -> None: ...

    def find_log_end(self) -> LogStart:
        found = self.read_timed_end()
        return LogStart(found.file, found.pos, self._identity(), (), found.ts_ms)

    def resume_log(self, stored: StoredPosition) -> LogStart:
        now = self._identity()
        if now.server_uuid != stored.identity.server_uuid:
            raise SourceRefusedError("the source is another server than the one recorded", START_OVER)
        for proof in stored.proof:
            line = next(lines(self._folder, proof.file, proof.start), None)
            if line is None or line.proof != proof:
                raise SourceRefusedError("the log is not the one that was captured", START_OVER)
        return LogStart(stored.file, stored.pos, now, stored.proof, stored.ts_ms)

    def _identity(self) -> Identity:
        uuid = (self._folder / "id").read_text()
        return Identity(server_uuid=uuid, server_id=1, version="1", gtid_set=None)

    def parse_gtids(self, text: str | None) -> GtidSet:
        return GtidSet.parse(text or "")

    def open_log(self, record: StoredPosition, captured: Callable[[str, str], bool]) -> FileLog:
        return FileLog(self._folder, record, captured)

    def build_context(self, name: str, epoch: int, gen: int) -> SourceContext:
        return SourceContext(connector=self.connector, name=name, epoch=epoch, gen=gen)

    def read_timed_end(self) -> TimedEnd:
        now = read_clock_ms()  # before the end
        return TimedEnd(*end(self._folder), now)

    def list_table_names(self, patterns: Sequence[str]) -> list[TableName]:
        seen = sorted(tables(self._folder)["tables"])
        return [(DB, name) for name in seen if is_selected(patterns, DB, name)]

    def examine_tables(self, names: Collection[TableName]) -> dict[TableName, ExaminedTable]:
        seen = tables(self._folder)["tables"]
        known = {(DB, name): msgspec.convert(each["definition"], Table) for name, each in seen.items()}
        return {name: ExaminedTable(known[name], None) if name in known else MISSING for name in names}

    def prove_definition(self, place: DefinitionPlace, name: TableName) -> Proof:
        """The last one in the log before the place is active, and after a statement the one that it makes."""
        found: Table | None = None
        for line in lines(self._folder, "", 0):
            point = _point(line.file, line.start)
            if point > place.point or (place.beginning and point == place.point):
                break
            for change in json.loads(line.text)["do"]:
                if change.get("define", {}).get("name") == name[1] or change.get("drop") == name[1]:
                    found = msgspec.convert(change["define"], Table) if "define" in change else None
        return ProvenDefinition(found, None)

    def prove_definitions(self, at: DefinitionPlace, names: Collection[TableName]) -> dict[TableName, Proof]:
        return {name: self.prove_definition(at, name) for name in names}

    def find_nontransactional_engine(self, name: TableName) -> None: ...
    def estimate_rows(self, name: TableName) -> None: ...  # nobody knows
    def find_partitioning(self, place: DefinitionPlace, name: TableName) -> None: ...
    def may_have_converted(self, place: DefinitionPlace, name: TableName, doubt: object) -> Any: ...
    def make_impact_finder(self, objects_changed: Any) -> Any: ...  # nobody asks: its log says what they do

    def open_reader(self, started: LogPoint) -> FileReader:
        return FileReader(self._folder)


def file_source(config: Config, name: str) -> SourceDatabase:
    return FileSource(Path(config.sources[name].host))  # `host` is the folder


def _point(file: str, pos: int) -> LogPoint:
    return parse_binlog_file_number(file), pos


def end(folder: Path) -> tuple[str, int]:
    file = log_files(folder)[-1]
    return file.name, file.stat().st_size


def tables(folder: Path) -> Any:
    """`file`, `pos`: up to where it has the log; `tables`: name → `definition`, `rows`."""
    return json.loads((folder / "tables.json").read_text())
