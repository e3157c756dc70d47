"""Barriers over a source in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from producer.barriers.barriers import BarrierHandler
from producer.barriers.impact import StatementImpact
from producer.barriers.new_tables import NewTableCapture
from producer.binlog_format.log_event import LoggedStatement, SessionSettings
from producer.decoders.row_codec import SourceContext, TransactionContext
from producer.definitions.requests import ProvenDefinition
from producer.errors import TableStoppedError
from producer.sources.changes import Barrier, TransactionHeader
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.start.started import StartedCapture
from producer.statements import ddl
from producer.statements.closure import ImpactedTables
from producer.statements.conversions import treat_optimize_as_alter
from producer.statements.shadows import ShadowTables
from producer.statements.statement import parse_statement
from producer.tables import CapturedTables, TableState, TopicState
from schemas.config.online_ddl import enable_all_tools
from schemas.io.mysql_catalog import is_selected
from schemas.problems import decode_problem
from schemas.table.model import Table
from schemas.table.names import NameRules, TableName
from schemas.wire.position import DEFINITION_ROW
from schemas.wire.records import Identity, StoredPosition, TableStop
from tests.kits.apply import account_table
from tests.stands.event_writer import TopicWriter

CONTEXT = SourceContext(connector="mariadb", form=MARIADB_FLAVOUR.table_map, name="b1", epoch=0, gen=1)


RECORD = StoredPosition(
    source="b1", gen=1, epoch=0, file="binlog.000003", pos=4, ts_ms=7,
    identity=Identity(server_uuid=None, server_id=1, version="11", gtid_set=None),
)  # fmt: skip


HEADER = TransactionHeader("binlog.000003", 700, 7, 1, None)


T, U = ("bank", "t"), ("bank", "u")


@dataclass
class Stage:
    """CapturedTables are `bank.t`, defined by a statement, and `bank.u`, as capture found it at its start."""

    now: dict[tuple[str, str], Table | str] = field(default_factory=dict)
    kind: str | None = ""
    reach: ImpactedTables = field(default_factory=lambda: ImpactedTables(frozenset()))
    names: NameRules = field(default_factory=NameRules)
    writer: TopicWriter = field(default_factory=TopicWriter)
    changed: list[tuple[str, str]] = field(default_factory=list)
    again: list[tuple[str, str]] = field(default_factory=list)
    snapshots: bool = True
    tools: bool = False
    offset: int = 720
    errors: dict[tuple[str, str], str] = field(default_factory=dict)
    settings: SessionSettings = field(default_factory=SessionSettings)
    converts: bool = False
    old_agents: str = ""
    """Why the event of removed rows may not be sent."""

    def __post_init__(self) -> None:
        self.shadows = ShadowTables(enable_all_tools().names, self.names)
        self.captured = CapturedTables("rowlock", "b1")
        for name, row in ((T, 0), (U, DEFINITION_ROW)):
            table = account_table(name=name[1])
            self.captured.tables[name] = TableState(
                name, self.captured.get_topic(name), table, (0, 2, 9, row)
            )
            self.captured.known.add(name)
            self.now.setdefault(name, table)

    # what BarrierHandler asks of the source

    def prove_definition(self, _place: object, name: tuple[str, str]) -> ProvenDefinition:
        found = self.now.get(name)
        return (
            ProvenDefinition(found, None)
            if not isinstance(found, str)
            else ProvenDefinition(None, decode_problem(found))
        )

    def find_impact(self, *_: object) -> ImpactedTables:
        return self.reach

    def find_partitioning(self, _place: object, _name: tuple[str, str]) -> str | None:
        return self.kind

    def may_have_converted(self, *_: object) -> bool:
        return self.converts

    def open_topic(self, name: tuple[str, str]) -> TopicState:
        return self.captured.get_topic(name)

    def selected(self, db: str, table: str) -> bool:
        return is_selected(["bank.*"], db, table) and not (self.tools and table.startswith("_t_"))

    def concern(self) -> StatementImpact:
        nothing: Any = self
        return StatementImpact(self.captured, self.selected, self.names, nothing)

    def barriers(self) -> BarrierHandler:
        nothing: Any = self
        writer: Any = self.writer
        begun = StartedCapture(RECORD, CONTEXT, self.captured, {}, self.errors, fresh=False)
        new_tables = NewTableCapture(
            begun, writer, nothing, self.selected, self._changed, nothing, snapshots=self.snapshots
        )
        return BarrierHandler(
            begun, writer, nothing, self.selected, self._changed, new_tables,
            on_recreated_table=lambda name, _: self.again.append(name), shadows=self.shadows,
            explain_old_agents=lambda: self.old_agents,
        )  # fmt: skip

    def _changed(self, state: TableState, _: object) -> None:
        self.changed.append(state.name)

    def error(self, sql: str, reach: ImpactedTables) -> TableStoppedError:
        """Carry `sql` out, which stops a table."""
        self.reach = reach
        error = self._carried_out(sql)
        assert isinstance(error, TableStoppedError)
        return error

    def carry_out(self, sql: str) -> dict[tuple[str, str], str]:
        """Carry `sql` out; returns the causes of the tables that it stops."""
        error = self._carried_out(sql)
        parts = error.parts if isinstance(error, TableStoppedError) else ()
        return {name: part.cause for part in parts for name in part.tables or ()}

    def _carried_out(self, sql: str) -> TableStoppedError | None:
        statement = treat_optimize_as_alter(
            parse_statement(LoggedStatement("bank", sql, settings=self.settings))
        )
        assert not isinstance(statement.kind, ddl.TransactionControl | ddl.HarmlessStatement)
        self.offset += 1
        return self.handle(Barrier(HEADER, statement, len(self.writer.sent), self.offset - 1))

    def handle(self, barrier: Barrier) -> TableStoppedError | None:
        barriers, before = self.barriers(), len(self.writer.sent)
        barriers.note_barrier(barrier)
        transaction = TransactionContext(
            id="x", gtid=None, file="binlog.000003", file_number=3, pos=700, ts_ms=7, server_id=1, made_ms=7
        )
        taken, error = barriers.carry_out(barrier, self.concern().list_affected_tables(barrier), transaction)
        assert taken == len(self.writer.sent) - before
        return error

    @property
    def effects(self) -> list[tuple[str, str | None]]:
        return [(event.op, event.effect) for event in self.writer.events()]


def a_stop(pos: int = 700, cause: str = "dropped") -> TableStop:
    return TableStop(
        cause=cause,
        at=(0, 3, pos, -1),
        file="binlog.000003",
        pos=pos,
        reason="bank.acct …",
        remedy="x",
        since_ms=7,
    )


ACCT, LOG, PARENT, CHILD = ("bank", "acct"), ("bank", "log"), ("bank", "parent"), ("bank", "child")


@dataclass
class Seen:
    """What the user sees: everything, unless a test takes it away."""

    hidden: tuple[str, ...] = ()

    def can_see_all_tables(self) -> bool:
        return "tables" not in self.hidden

    def can_see_triggers(self, _db: str) -> bool:
        return "triggers" not in self.hidden

    def can_see_foreign_keys(self, _db: str) -> bool:
        return "keys" not in self.hidden

    def can_see_routines(self) -> bool:
        return "routines" not in self.hidden


@dataclass
class Source:
    visibility: Seen = field(default_factory=Seen)
    kinds: dict[TableName, str] = field(default_factory=dict)
    triggers: dict[TableName, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    views: dict[TableName, str | None] = field(default_factory=dict)
    routines: dict[TableName, str | None] = field(default_factory=dict)
    cascades: dict[TableName, frozenset[TableName]] = field(default_factory=dict)


def source(**more: object) -> Source:
    tables = [ACCT, LOG, PARENT, CHILD, ("bank", "traced"), ("other", "acct"), ("other", "plain")]
    found = Source(
        kinds=dict.fromkeys(tables, "table") | dict.fromkeys([("bank", "v"), ("bank", "deep")], "view"),
        triggers={("bank", "traced"): (("bank",
         "BEGIN IF NEW.id > 1 THEN UPDATE acct SET n = n + 1; END IF; END"),)},
        views={
            ("bank", "v"): "select `bank`.`acct`.`id` AS `id` from `bank`.`acct`",
            ("bank", "deep"): "select `bank`.`v`.`id` AS `id`,`f`(1) AS `x` from `bank`.`v`",
        },
        routines={
            ("bank", "f"): "BEGIN INSERT INTO acct VALUES (1); RETURN 1; END",
            ("bank", "pure"): "RETURN (SELECT COUNT(*) FROM acct)",
            ("bank", "p"): "BEGIN CALL q(); END",
            ("bank", "q"): "DELETE FROM child WHERE id = 1",
            ("bank", "dynamic"): "BEGIN PREPARE s FROM @x; EXECUTE s; END",
        },
        cascades={PARENT: frozenset([CHILD])},
    )  # fmt: skip
    for name, value in more.items():
        setattr(found, name, value)
    return found
