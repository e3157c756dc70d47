"""The model's table, at the source and at the target."""

from __future__ import annotations

from msgspec.structs import replace

from consumer.attempt.spec import encode_known_table
from consumer.tables.router import TableRoute, build_desired_table, resolve_route
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex

CI = "utf8mb4_general_ci"
SOURCE = "s"
DB = "d"
BRANCH = "branch"
COLUMNS = ("k", "u1", "u2", "v")


def _column(name: str) -> Column:
    if name == "v":
        return Column(name=name, type=ColumnType(kind=Kind.INT, bits=64))
    return Column(
        name=name,
        type=ColumnType(kind=Kind.VARCHAR, length=10, charset="utf8mb4", collation=CI),
        nullable=name != "k",
    )


def _unique(name: str, column: str) -> UniqueIndex:
    return UniqueIndex(name=name, parts=(IndexPart(column=column),))


TABLE = Table(
    db=DB,
    name="t",
    columns=tuple(map(_column, COLUMNS)),
    key=_unique("PRIMARY", "k"),
    unique=(_unique("u1", "u1"), _unique("u2", "u2")),
)
"""At the source: k is the key, u1 and u2 are unique, v is the version."""


TABLES = {name: replace(TABLE, name=name) for name in ("t", "x", "n")}
"""Every table of a source by its name; of `t` all that follows is simulated, too, the topics of the others
are read. `n` is made later."""
LOOSE = replace(TABLE, unique=(_unique("u1", "u1"),))
"""`t` at a source that has no unique index on u2. The target has one."""
COARSE = "public.ci"
"""A collation in which the fold of a key does not distinguish any two."""


def routes(branch: str, *, keeps: bool = False) -> tuple[TableRoute, ...]:
    """Return the routes of a pipeline that keeps the source's rows apart by the column `branch`, the last of
    the target's. `keeps`: rows that a statement removed stay."""
    return (TableRoute("d.t", "public.t", ((BRANCH, branch),), keeps_removed_rows=keeps),)


def table_there(branch: str, *, coarse: bool = False) -> Table:
    """Return the target table as it is in the target. `coarse`: its key's collation is `COARSE`."""
    routed = resolve_route(routes(branch), SOURCE, TABLE.db, TABLE.name)
    assert routed is not None
    parts = (IndexPart(column="k", collation=COARSE if coarse else None),)
    return build_desired_table(replace(TABLE, key=replace(TABLE.key, parts=parts)), routed)


def real_table(branch: str, *, coarse: bool = False) -> bytes:
    """Return it as JSON, known of any definition."""
    return encode_known_table(None, table_there(branch, coarse=coarse))
