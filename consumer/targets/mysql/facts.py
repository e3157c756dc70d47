"""Facts about a table in MySQL and MariaDB, beside its definition, that keep rowlock from writing it or
change the values written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from consumer.targets.checks.table_facts import Remark, TableFacts
from consumer.targets.mysql import rights

if TYPE_CHECKING:
    from consumer.targets.mysql.connection import MySqlLink

_FACTS = {
    "triggers": "SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = %s "
    "AND event_object_table = %s",
    "foreign_keys": "SELECT CONCAT(constraint_name, ' (', table_schema, '.', table_name, ' to ', "
    "referenced_table_schema, '.', referenced_table_name, ')') FROM information_schema.key_column_usage "
    "WHERE referenced_table_name IS NOT NULL AND ordinal_position = 1 AND ((table_schema = %s AND table_name "
    "= %s) OR (referenced_table_schema = %s AND referenced_table_name = %s))",
    "required": "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = "
    "%s AND is_nullable = 'NO' AND column_default IS NULL AND extra NOT LIKE '%%auto_increment%%' AND "
    "extra NOT LIKE '%%generated%%'",
}
#: Partitionings by RANGE and LIST with the bounds of their partitions, in one row for each partition.
_PARTITIONS = """
SELECT DISTINCT partition_method, partition_expression, partition_description
FROM information_schema.partitions
WHERE table_schema = %s AND table_name = %s AND partition_name IS NOT NULL
UNION SELECT DISTINCT subpartition_method, subpartition_expression, NULL FROM information_schema.partitions
WHERE table_schema = %s AND table_name = %s AND subpartition_name IS NOT NULL"""
_ENGINE = """
SELECT t.engine, e.transactions FROM information_schema.tables t JOIN information_schema.engines e
  ON e.engine = t.engine
WHERE t.table_schema = %s AND t.table_name = %s"""


def read_table_facts(link: MySqlLink, schema: str, name: str, foreign: str) -> TableFacts:
    """Return the facts of a table.

    `foreign`: InnoDB's own table of foreign keys, which shows those of databases that the user may not
    see.
    """
    place: list[object] = [schema, name]
    found = {
        fact: tuple(str(row[0]) for row in link.execute(query, place * (query.count("%s") // 2)))
        for fact, query in _FACTS.items()
    }
    engines = link.execute(_ENGINE, [*place])
    partitions = link.execute(_PARTITIONS, place * 2)
    lines = [str(row[0]) for row in link.execute("SHOW GRANTS", [])]
    if rights.can_see_processes(lines):
        found["foreign_keys"] = (
            *found["foreign_keys"],
            *_list_hidden_foreign_keys(link, schema, name, foreign),
        )
    return TableFacts(
        triggers=found["triggers"],
        foreign_keys=found["foreign_keys"],
        required=found["required"],
        unseen=tuple(rights.find_visibility_gaps(lines, link.account, (schema, name))),
        remarks=(*_check_engine(engines), *_check_partitions(partitions)),
    )


def find_durability_risk(link: MySqlLink) -> Remark | None:
    """Return why a crash may take back commits.

    The setting is the server's: a session cannot change it for itself.
    """
    flush = int(str(link.execute("SELECT @@innodb_flush_log_at_trx_commit", [])[0][0]))
    if flush == 1:
        return None
    lost = "of the server's machine" if flush == 2 else "of the server"
    return Remark(
        (
            f"innodb_flush_log_at_trx_commit is {flush}: a crash {lost} loses about a second of "
            "commits that readers have already seen; rowlock applies them again, but readers see "
            "rows go back meanwhile"
        ),
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1; and set it in the server's configuration",
        level="warning",
    )


def _list_hidden_foreign_keys(link: MySqlLink, schema: str, name: str, foreign: str) -> list[str]:
    """Return the foreign keys of other databases that refer to the table, whether or not the user may
    see them.
    """
    names = [f"{schema}/{name}", f"{encode_file_name(schema)}/{encode_file_name(name)}"]
    query = (
        f"SELECT CONCAT(id, ' (', for_name, ' to ', ref_name, ')') FROM information_schema.{foreign} "
        "WHERE ref_name IN (%s, %s) AND for_name NOT LIKE CONCAT(SUBSTRING_INDEX(ref_name, '/', 1), '/%%')"
    )
    return [str(row[0]) for row in link.execute(query, [*names])]


def _check_engine(engines: Sequence[Sequence[object]]) -> Iterator[Remark]:
    for engine, transactions in engines:
        if transactions != "YES":
            yield Remark(
                f"its engine {engine} has no transactions: rows and progress could differ after a failure",
                "ALTER TABLE … ENGINE=InnoDB",
            )


def _check_partitions(partitions: Sequence[Sequence[object]]) -> Iterator[Remark]:
    if open_ones := find_partial_partitionings(partitions):
        yield Remark(
            (
                f"has partitions that do not cover every row ({', '.join(open_ones)}): rows outside all "
                "partitions are quarantined"
            ),
            "add a partition for the rest (LIST on MariaDB: DEFAULT; RANGE: MAXVALUE)",
            level="warning",
        )


def find_partial_partitionings(partitions: Sequence[Sequence[object]]) -> tuple[str, ...]:
    """Return the partitionings that do not accept every row, from (method, expression, bound) of each
    partition. Pure.
    """
    bounds: dict[tuple[str, str], set[str]] = {}
    for method, expression, bound in partitions:
        bounds.setdefault((str(method), str(expression)), set()).add(str(bound))
    return tuple(
        f"{method} ({expression})"
        for (method, expression), found in bounds.items()
        if (method.startswith("RANGE") and not any(_UNBOUNDED.fullmatch(bound) for bound in found))
        or (method.startswith("LIST") and "DEFAULT" not in found)
    )


def encode_file_name(name: str) -> str:
    """Return a name as InnoDB's own catalog writes it, except for letters of some scripts, which have
    other codes there.
    """
    return "".join(
        char if char.isascii() and (char.isalnum() or char == "_") else f"@{ord(char):04x}" for char in name
    )


_UNBOUNDED = re.compile(r"\s*MAXVALUE\s*(,\s*MAXVALUE\s*)*")
