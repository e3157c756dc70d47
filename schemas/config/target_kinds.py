"""Which kinds of target there are: the one table that a new kind is entered in (docs/how-to/add-a-target.md).

The configuration takes these words as `type` of a target; apply finds the modules by them. Data only: nothing is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TargetKind:
    """`attribute` of `module` is its `consumer.targets.dialect.Dialect`.

    `warm`: further modules that it would import with its first table: workers import them before they are forked.
    """

    module: str
    attribute: str
    warm: tuple[str, ...] = ()


_MYSQL = ("consumer.targets.mysql.dialect", ("sqlalchemy.dialects.mysql.pymysql",))

TARGET_KINDS = {
    "mysql": TargetKind(_MYSQL[0], "MYSQL", _MYSQL[1]),
    "mariadb": TargetKind(_MYSQL[0], "MARIADB", _MYSQL[1]),
    "postgres": TargetKind(
        "consumer.targets.postgres.dialect", "POSTGRES", ("sqlalchemy.dialects.postgresql.psycopg",)
    ),
}
