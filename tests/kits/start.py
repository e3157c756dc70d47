"""A start of capture in memory: topics written by hand, a source with given tables, and a writer that
delivers when the caller waits for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from producer.decoders.envelope import SourceContext
from producer.definitions.requests import DefinitionPlace, Proof, ProvenDefinition
from producer.sources.changes import LogStart, ServerSwitch
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.survey import MISSING, ExaminedTable
from producer.start.positions import CaptureAssignment, PositionStore
from producer.start.started import StartedCapture
from producer.start.startup import CaptureStarter
from producer.tables import CapturedTables, TableName
from schemas.config.model import SourceConfig
from schemas.io.mysql_catalog import is_selected
from schemas.problems import decode_problem
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.names import EXACT
from schemas.wire.codec import decode_event, decode_stored_position, encode_stored_position
from schemas.wire.event import EventEnvelope
from schemas.wire.position import Position
from schemas.wire.records import (
    Identity,
    StoredPosition,
    TableStop,
    format_former_table_topic,
    format_position_topic,
)
from tests.sim.kafka import Broker, Message
from tests.stands.event_writer import TopicWriter

POSITIONS = format_position_topic("rowlock", "b1")
ACCT: TableName = ("bank", "acct")
OTHER_UUID = "00000000-0000-0000-0000-00000000000a"
RECORD = StoredPosition(
    source="b1", gen=4, epoch=0, file="binlog.000003", pos=500, ts_ms=7,
    identity=Identity(server_uuid="u", server_id=1, version="9", gtid_set=None),
)  # fmt: skip


def table(name: str = "acct", *more: str) -> Table:
    kind = ColumnType(kind=Kind.INT, bits=32)
    columns = tuple(Column(name=each, type=kind, nullable=False) for each in ("id", *more))
    return Table(
        db="bank",
        name=name,
        columns=columns,
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
    )


def event(
    position: Position, gen: int = 4, *, name: str = "acct", source: str = "b1", op: str = "m", **content: Any
) -> bytes:
    """Return an event of a table of `bank`. `content`: `definition`, `stop`, `copy`, `chunk`, `log`."""
    place = {
        "name": source, "db": "bank", "table": name, "row": position[3], "position": position, "prev": None,
        "gen": gen,
    }  # fmt: skip
    return msgspec.json.encode({"op": op, "source": place, **content})


def a_stop(pos: int = 300, cause: str = "value") -> TableStop:
    return TableStop(
        cause=cause, at=(0, 3, pos, -1), file="binlog.000003", pos=pos, reason="bank.acct …", remedy="x",
        since_ms=7
    )  # fmt: skip


class Topics(Broker):
    """`read_ranges`: what was read of each topic."""

    def __init__(self) -> None:
        super().__init__()
        self.read_ranges: list[tuple[str, int, int]] = []

    def read_range(self, topic: str, start: int, end: int) -> Any:
        self.read_ranges.append((topic, start, end))
        return super().read_range(topic, start, end)

    def put(self, topic: str, *values: bytes) -> None:
        for value in values:
            self.append(topic, b"{}", value)


class Start:
    """A start of source `b1`, all of whose tables are in `bank`.

    What a test may set: `tables`, what the source has (a text: why it cannot be captured); `proofs`, what its
    catalog proves otherwise; `term`; `meanwhile`, what others do between its look at the topics and its
    claim; `switch`: the start finds another server, whose log continues at file 2; `config`, settings of the
    source.
    """

    def __init__(self, **config: Any) -> None:
        self.tables: dict[TableName, Table | str] = {ACCT: table()}
        self.proofs: dict[TableName, Proof] = {}
        self.topics = Topics()
        self.term = CaptureAssignment()
        self.captured = CapturedTables("rowlock", "b1")
        self.meanwhile: Callable[[], None] | None = None
        self.switch: ServerSwitch | None = None
        self._config = SourceConfig.model_validate({
            "type": "mysql", "host": "127.0.0.1", "port": 1, "user": "u", "password": "p",
            "tables": ["bank.*"], **config,
        })  # fmt: skip
        self.topics.ensure([POSITIONS], {})

    def topic(self, name: str = "acct") -> str:
        return format_former_table_topic("rowlock", "b1", "bank", name)

    def stored(self, record: StoredPosition = RECORD, **changed: Any) -> None:
        """Let capture have stored a position."""
        record = msgspec.structs.replace(record, **changed)
        self.topics.append(POSITIONS, str(record.gen).encode(), encode_stored_position(record))

    def has(self, *values: bytes, name: str = "acct") -> None:
        """Let the topic of a table have these events."""
        self.topics.ensure([self.topic(name)], {})
        self.topics.put(self.topic(name), *values)

    def begin(self, *, new_snapshot: bool = False) -> StartedCapture:
        source: Any = SimpleNamespace(
            tables=self, definitions=self, build_context=self._context, resume_log=self._resumed,
            parse_gtids=lambda text: self.make_set.parse(text or ""),
            find_log_end=lambda: LogStart(RECORD.file, RECORD.pos, RECORD.identity, (), 50),
        )  # fmt: skip
        writer = TopicWriter(self.topics.append, holding=True)
        writer.meanwhile = self.meanwhile
        self.before = {name: len(topic.records) for name, topic in self.topics.topics.items()}
        return CaptureStarter(
            source, self._config, writer, self.topics, self.topics, PositionStore(POSITIONS), self.captured,
            self.term
        ).start_capture(new_snapshot=new_snapshot)  # fmt: skip

    def sent(self, name: str = "acct") -> list[EventEnvelope]:
        """What the topic of a table has got from the start's first moment on."""
        return [decode_event(each.value() or b"") for each in self._new(self.topic(name))]

    def claimed(self) -> list[StoredPosition]:
        return [decode_stored_position(value) for each in self._new(POSITIONS) if (value := each.value())]

    def _new(self, topic: str) -> list[Message]:
        return self.topics.topics[topic].records[self.before.get(topic, 0) :]

    # --- the source

    names = EXACT
    make_set: type[GtidSet] = GtidSet
    identity = Identity(server_uuid="b", server_id=2, version="9", gtid_set=f"{OTHER_UUID}:1-5")
    """Of the other server."""

    def list_table_names(self, patterns: Sequence[str]) -> list[TableName]:
        return [name for name in sorted(self.tables) if is_selected(patterns, *name)]

    def examine_tables(self, names: Collection[TableName]) -> dict[TableName, ExaminedTable]:
        found = {name: self.tables.get(name) for name in names}
        return {
            name: MISSING if each is None else ExaminedTable(None, decode_problem(each)) if isinstance(each,
            str) else ExaminedTable(each, None)
            for name, each in found.items()
        }  # fmt: skip

    def prove_definitions(
        self, _place: DefinitionPlace, names: Collection[TableName]
    ) -> dict[TableName, Proof]:
        shown = self.examine_tables(names)
        return {name: self.proofs.get(name, ProvenDefinition(*shown[name])) for name in names}

    def _context(self, name: str, epoch: int, gen: int) -> SourceContext:
        return SourceContext(connector="mysql", name=name, epoch=epoch, gen=gen)

    def _resumed(self, stored: StoredPosition) -> LogStart:
        if self.switch is not None:
            return LogStart("binlog.000002", 77, self.identity, (), stored.ts_ms, self.switch)
        return LogStart(stored.file, stored.pos, stored.identity, stored.proof, stored.ts_ms)
