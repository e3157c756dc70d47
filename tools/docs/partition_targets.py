"""The kinds of targets of docs/reference/partition-statements.md, and what each of them does after a
statement on partitions, as apply decides it (consumer/attempt/copies/marker.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

from consumer.attempt.copies.marker import can_sweep_keys
from consumer.ordering.model import TopicOptions
from consumer.tables.definition import ActiveDefinition, prepare_definition
from consumer.tables.router import TableRoute
from consumer.tables.stored import StoredDefinition
from consumer.targets.kafka.formats import FORMATS
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.names import EXACT

Effect = Literal["passes", "removes", "may change"]
"""What capture makes of a statement: a definition event, an event `p`, or a stop of the table."""
PASSES, SWEEP, KEPT, COPY = "passes", "key sweep", "key sweep; the rows stay", "copy"
OUTCOMES = {
    PASSES: "The table goes on, and its rows stay as they are.",
    SWEEP: "The table goes on, with a debt; the removed rows are deleted between its later events.",
    KEPT: "As a key sweep, but the removed rows are listed and stay.",
    COPY: "The table stops until it is copied, which starts by itself within the limits of `repair`.",
}

_INT = ColumnType(kind=Kind.INT, bits=32)
_TEXT = ColumnType(kind=Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_bin")


def _build_table(id_type: ColumnType, *key: str, db: str = "bank") -> Table:
    columns = (
        Column(name="id", type=id_type, nullable=False),
        Column(name="v", type=_TEXT, nullable=False),
    )
    parts = tuple(IndexPart(column=name) for name in key or ("id",))
    return Table(db=db, name="t", columns=columns, key=UniqueIndex(name="PRIMARY", parts=parts))


@dataclass(frozen=True)
class TargetForm:
    """A kind of target, with a table of a source and its table there."""

    name: str
    meaning: str
    source: Table = field(default_factory=lambda: _build_table(_INT))
    target: Table = field(default_factory=lambda: _build_table(_INT, db="public"))
    route: TableRoute = field(default_factory=lambda: TableRoute("*.*", "public.{table}"))
    batches: bool = False

    def resolve(self) -> ActiveDefinition:
        """Return the definition as apply resolves it."""
        session: Any = SimpleNamespace(column_names=EXACT, open_topic=lambda *_, **__: None)
        stored = StoredDefinition(self.source)
        return prepare_definition(
            session, stored, source_name="s", routes=(self.route,), create=False, existed=True,
            real=self.target,
        )  # fmt: skip

    def decide(self, effect: Effect) -> str:
        """Return what happens at the target."""
        if effect == "passes":
            return PASSES
        active = self.resolve()
        if effect != "removes" or not can_sweep_keys(active, batches=self.batches):
            return COPY
        return KEPT if active.routed.keeps_removed_rows else SWEEP


def _make_topic_form(format_: str) -> TargetForm:
    route = TableRoute("*.*", "feed.{table}", topic=TopicOptions(format=format_))
    return TargetForm(f"Kafka, `{format_}`", f"a topic with records of the format `{format_}`", route=route)


_WHOLE = ColumnType(kind=Kind.DECIMAL, precision=8, scale=0)
_CENTS = ColumnType(kind=Kind.DECIMAL, precision=10, scale=2)
_DATABASE = "a table of PostgreSQL, MySQL, MariaDB or Oracle"
TARGETS: tuple[TargetForm, ...] = (
    TargetForm("database", f"{_DATABASE} with a key of whole numbers, dates or times, or decimals of the "
               "source's scale"),
    TargetForm("database, other scale", "a decimal key with another scale than at the source",
               _build_table(_WHOLE), _build_table(_CENTS, db="public")),
    TargetForm("database, text", "a key of text or another type that the target may order differently",
               _build_table(_TEXT), _build_table(_TEXT, db="public")),
    TargetForm("database, wider key", "the table's key has more columns than the source's and `add:`",
               target=_build_table(_INT, "id", "v", db="public")),
    TargetForm("database, `keep`", "a route with `partitions: keep`",
               route=TableRoute("*.*", "public.{table}", keeps_removed_rows=True)),
    *(_make_topic_form(format_) for format_ in FORMATS),
    TargetForm("files", "files and table formats: a target of another package that takes whole batches",
               batches=True),
)  # fmt: skip
