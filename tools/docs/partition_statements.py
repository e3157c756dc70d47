"""Generates docs/reference/partition-statements.md from the code: `python -m tools.docs.partition_statements
> FILE`.

What a statement does to a table is what capture judges of its text (producer/statements); what a target does
then is in tools/docs/partition_targets.py. tests/integration/test_statement_rows.py compares each row
with what real servers do, and tests/unit/test_partition_statements.py lets each kind of target apply it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from typing import Literal, NamedTuple

from producer.binlog_format.log_event import LoggedStatement
from producer.statements.actions import RowEffect
from producer.statements.judgement import StatementVerdict, judge_statement
from producer.statements.statement import parse_statement
from tools.docs.partition_targets import OUTCOMES, TARGETS, Effect, TargetForm

# --- statements on partitioned tables


class Partitioning(NamedTuple):
    """A kind of partitioning of a table with the integer key `id`, up to 299, in the partitions p0 and p1."""

    name: str
    """As the page names it."""
    method: str
    """As the server's catalog names it."""
    clause: str
    """The end of the CREATE TABLE."""


_RANGE = "(PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (300))"
_SUBPARTITIONS = (
    "(PARTITION p0 VALUES LESS THAN (100) (SUBPARTITION p0s0, SUBPARTITION p0s1), "
    "PARTITION p1 VALUES LESS THAN (300) (SUBPARTITION p1s0, SUBPARTITION p1s1))"
)
_LIST = "(PARTITION p0 VALUES IN (0), PARTITION p1 VALUES IN (1, 2))"
NONE = Partitioning("none", "", "")
RANGE = Partitioning("RANGE", "RANGE", f"PARTITION BY RANGE (id) {_RANGE}")
RANGES = (RANGE, Partitioning("RANGE COLUMNS", "RANGE COLUMNS", f"PARTITION BY RANGE COLUMNS (id) {_RANGE}"))
OPEN = Partitioning(
    "RANGE with MAXVALUE", "RANGE MAXVALUE",
    f"PARTITION BY RANGE (id) {_RANGE[:-1]}, PARTITION pm VALUES LESS THAN MAXVALUE)",
)  # fmt: skip
SUB = Partitioning(
    "RANGE with subpartitions", "RANGE", f"PARTITION BY RANGE (id) SUBPARTITION BY HASH (id) {_SUBPARTITIONS}"
)
LIST = Partitioning("LIST", "LIST", f"PARTITION BY LIST (id DIV 100) {_LIST}")
HASHES = tuple(
    Partitioning(method, method, f"PARTITION BY {method} (id) PARTITIONS 4")
    for method in ("HASH", "LINEAR HASH")
)
KEYS = tuple(
    Partitioning(method, method, f"PARTITION BY {method} (id) PARTITIONS 4")
    for method in ("KEY", "LINEAR KEY")
)
ALL_BUT_SUB = (*RANGES, LIST, *HASHES, *KEYS)
ALL = (*RANGES, OPEN, SUB, LIST, *HASHES, *KEYS)

OtherTable = Literal["none", "existing", "created"]
"""Whether a statement names a second table, `x`, and whether that is there before."""


class PartitionStatement(NamedTuple):
    """A statement on the table `t` of each of some kinds of partitioning."""

    action: str
    kinds: tuple[Partitioning, ...]
    server: Literal["", "mariadb", "mysql"] = ""
    """The only server that has it; empty: both have it."""
    other: OtherTable = "none"


_on_mariadb = partial(PartitionStatement, server="mariadb")
_with_other = partial(PartitionStatement, other="existing")

STATEMENTS: tuple[PartitionStatement, ...] = (
    PartitionStatement("DROP PARTITION p0", (*RANGES, OPEN, SUB, LIST)),
    PartitionStatement("TRUNCATE PARTITION p0", ALL),
    PartitionStatement("TRUNCATE PARTITION ALL", ALL),
    PartitionStatement("TRUNCATE PARTITION p0s0", (SUB,), "mysql"),
    _on_mariadb("CONVERT PARTITION p0 TO TABLE x", (*RANGES, LIST), other="created"),
    _on_mariadb("CONVERT TABLE x TO PARTITION p9 VALUES LESS THAN (900)", RANGES, other="existing"),
    _on_mariadb("CONVERT TABLE x TO PARTITION p9 VALUES IN (7)", (LIST,), other="existing"),
    _with_other("EXCHANGE PARTITION p0 WITH TABLE x", (*RANGES, LIST, *HASHES)),
    _with_other("EXCHANGE PARTITION p0 WITH TABLE x WITHOUT VALIDATION", (*RANGES, LIST, *HASHES, *KEYS)),
    _with_other("EXCHANGE PARTITION p0s0 WITH TABLE x", (SUB,)),
    PartitionStatement("ADD PARTITION (PARTITION p9 VALUES LESS THAN (900))", (*RANGES, SUB)),
    PartitionStatement("ADD PARTITION (PARTITION p9 VALUES IN (7))", (LIST,)),
    PartitionStatement("ADD PARTITION PARTITIONS 2", (*HASHES, *KEYS)),
    PartitionStatement(
        "REORGANIZE PARTITION p0 INTO (PARTITION a VALUES LESS THAN (50), "
        "PARTITION b VALUES LESS THAN (100))",
        (*RANGES, OPEN, SUB),
    ),
    PartitionStatement(
        "REORGANIZE PARTITION p0, p1 INTO (PARTITION p VALUES LESS THAN (300))", (*RANGES, OPEN, SUB)
    ),
    PartitionStatement(
        "REORGANIZE PARTITION pm INTO (PARTITION p2 VALUES LESS THAN (400), "
        "PARTITION pm VALUES LESS THAN MAXVALUE)",
        (OPEN,),
    ),
    PartitionStatement(
        "REORGANIZE PARTITION p1 INTO (PARTITION a VALUES IN (1), PARTITION b VALUES IN (2))", (LIST,)
    ),
    PartitionStatement("REORGANIZE PARTITION p1 INTO (PARTITION p1 VALUES IN (2))", (LIST,)),
    PartitionStatement("REORGANIZE PARTITION", (*HASHES, *KEYS)),
    PartitionStatement("COALESCE PARTITION 1", (*HASHES, *KEYS)),
    *(
        PartitionStatement(f"{verb} PARTITION p0", ALL)
        for verb in ("REBUILD", "OPTIMIZE", "ANALYZE", "CHECK", "REPAIR")
    ),
    PartitionStatement("DISCARD PARTITION p0 TABLESPACE", ALL_BUT_SUB, "mysql"),
    PartitionStatement("REMOVE PARTITIONING", ALL),
    PartitionStatement("PARTITION BY HASH (id) PARTITIONS 3", (NONE, *ALL)),
    PartitionStatement("PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN MAXVALUE)", (NONE, *ALL)),
    PartitionStatement("PARTITION BY LIST (id DIV 1000) (PARTITION p VALUES IN (0))", (NONE, *ALL)),
)


class StatementRow(NamedTuple):
    """A statement on a table of one kind of partitioning."""

    statement: PartitionStatement
    kind: Partitioning

    @property
    def sql(self) -> str:
        return f"ALTER TABLE t {self.statement.action}"

    @property
    def verdicts(self) -> dict[str, StatementVerdict]:
        """The judgement of capture on each table that the statement names."""
        found = judge_statement(parse_statement(LoggedStatement("d", self.sql)))
        return {each.table[1]: each for each in found}

    @property
    def effect(self) -> Effect:
        verdict = self.verdicts["t"]
        if verdict.removes_under(self.kind.method):
            return "removes"
        if verdict.must_stop(same_definition=True) or not verdict.holds_under(self.kind.method):
            return "may change"
        return "passes"

    @property
    def other_rows(self) -> RowEffect | None:
        """The effect on the second table; None: there is none."""
        found = self.verdicts.get("x")
        return None if found is None else found.rows

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.statement.action}"


def list_rows(server: str = "") -> list[StatementRow]:
    """Return the rows, of one server if `server` is given."""
    return [
        StatementRow(statement, kind)
        for statement in STATEMENTS
        for kind in statement.kinds
        if not server or statement.server in ("", server)
    ]


# --- the page

_OTHER: dict[tuple[RowEffect | None, OtherTable], str] = {
    (None, "none"): "",
    ("replaced", "existing"): "`x`: copy",
    ("replaced", "created"): "`x`: snapshot, or copy if it was captured before",
    ("gone", "existing"): "`x`: as DROP TABLE (`on_drop`)",
}
_SERVERS = {"": "", "mariadb": "MariaDB only", "mysql": "MySQL only"}
_INTRO = """# Statements on partitions

<!-- Generated by `python -m tools.docs.partition_statements`; change the code, not this page. -->

What becomes of a captured table `t` in each target when a statement changes its partitions at the source, a
MySQL or MariaDB server. [Drop partitions](../how-to/partitions.md) explains debt and key sweep.

`x` is the other table that the statement names, if it is captured, too. With `snapshot: never` a new `x`
stops with the cause `rows-replaced`, and waits for `rowlock copy`.

A statement on partitions that rowlock does not know stops `t` for a copy, and so does one of these with
IGNORE. A copy is always of the whole table, never of one partition
([why](../adr/0041-partition-retention.md)).

"""


def _list_lines() -> Iterator[tuple[str, ...]]:
    """Yield the cells of each line: a statement, with the kinds of partitioning that have one outcome."""
    for statement in STATEMENTS:
        kinds: dict[tuple[str, ...], list[str]] = {}
        for kind in statement.kinds:
            row = StatementRow(statement, kind)
            outcome = (
                *(each.decide(row.effect) for each in _list_columns()),
                _OTHER[row.other_rows, statement.other],
            )
            kinds.setdefault(outcome, []).append(kind.name)
        for outcome, names in kinds.items():
            shown = "<br>".join(filter(None, (f"`{statement.action}`", _SERVERS[statement.server])))
            yield shown, ", ".join(names), *outcome


def _list_columns() -> list[TargetForm]:
    """Return the targets, without those of Kafka's formats that decide as the first one does."""
    effects: tuple[Effect, ...] = ("passes", "removes", "may change")
    topics = [each for each in TARGETS if each.route.topic is not None]
    alike = [
        each
        for each in topics[1:]
        if all(each.decide(effect) == topics[0].decide(effect) for effect in effects)
    ]
    names = " ".join(f"`{each.route.topic.format}`" for each in topics if each.route.topic is not None)
    first = TargetForm("Kafka", f"a topic, in each format ({names})", route=topics[0].route)
    return [first if each is topics[0] else each for each in TARGETS if each not in alike]


def render() -> str:
    """Return the whole page."""
    columns = _list_columns()
    parts = [_INTRO]
    parts.append("| outcome | what happens |\n|---|---|\n")
    parts += [f"| {outcome} | {meaning} |\n" for outcome, meaning in OUTCOMES.items()]
    parts.append("\n| target | what it is |\n|---|---|\n")
    parts += [f"| {each.name} | {each.meaning} |\n" for each in columns]
    heads = ("`ALTER TABLE t …`", "partitioned by", *(each.name for each in columns), "the other table")
    parts.append(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}\n")
    parts += [f"| {' | '.join(line)} |\n" for line in _list_lines()]
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(render())
