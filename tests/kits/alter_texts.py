"""The statements that change a column, in each dialect."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from consumer.targets.alterations import (
    Alteration,
    AlterTable,
    ChangeColumn,
)
from consumer.targets.mysql import alter_statements as mysql
from consumer.targets.postgres import alter_statements as postgres
from consumer.targets.postgres.catalog import build_index_name
from schemas.table.collations import make_collation_chooser, make_key_collation_chooser
from schemas.table.model import Column, ColumnType, Kind, Table
from tests.kits.targets import people

TABLE = people("s")


INT, BIG = ColumnType(kind=Kind.INT, bits=32), ColumnType(kind=Kind.INT, bits=64)


AVAILABLE = ("utf8mb4_bin", "utf8mb4_0900_bin", "utf8mb4_0900_ai_ci", "latin1_bin")


REAL_POSTGRES = postgres.PostgresRealTable(
    (
        postgres.RealIndex("people_pkey", ("id",), primary=True),
        postgres.RealIndex("people_mail_key", ("mail",)),
        postgres.RealIndex("by hand", ("land", "passport"), constraint=False),
    )
)


REAL_MYSQL = mysql.MySqlRealTable(
    {"PRIMARY": ("id",), "mail": ("mail",), "by hand": ("land", "passport")},
    frozenset({"PRIMARY", "mail", "by hand", "ordinary"}),
    make_key_collation_chooser(AVAILABLE),
    make_collation_chooser(AVAILABLE),
)


ALTER_PG, ALTER_MY = 'ALTER TABLE "s"."people" ', "ALTER TABLE `s`.`people` "


def column(name: str, type_: ColumnType = INT, *, null: bool = True, default: str | None = None) -> Column:
    return Column(name=name, type=type_, nullable=null, default=default)


def with_changed(table: Table, steps: Sequence[Alteration]) -> Table:
    """Return the table with a column "n" where a step changes that."""
    more = [step.now for step in steps if isinstance(step, ChangeColumn) and step.now.name == "n"]
    return replace(table, columns=(*table.columns, *more))


def in_postgres(
    *steps: Alteration, table: Table = TABLE, real: postgres.PostgresRealTable = REAL_POSTGRES
) -> list[str]:
    change = AlterTable(with_changed(table, steps), steps)
    found = postgres.render_statements(change, real, lambda each: build_index_name(table.name, each.name))
    return [text.removeprefix(ALTER_PG) for text in found]


def in_mysql(*steps: Alteration, table: Table = TABLE, real: mysql.MySqlRealTable = REAL_MYSQL) -> list[str]:
    found = mysql.render_statements(AlterTable(with_changed(table, steps), steps), real)
    return [text.removeprefix(ALTER_MY) for text in found]
