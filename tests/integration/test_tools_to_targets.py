"""A table that gh-ost or pt-online-schema-change altered, at targets: it ends as the source's, without a copy
where the tool kept all values.

The tools' statements are recorded ones, with rows that change meanwhile: under pt-online-schema-change's
triggers, and with what gh-ost plays into its shadow between them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer.tables.router import SchemaChangePolicy
from tests.kits.attempts import Real
from tests.kits.played_changes import Play, PlayedUnit, begun, differs
from tests.kits.schema_tools import ALTER, ATOMIC, TWO_STEPS, Tools, Writer, percona
from tests.kits.schema_tools import tools as tools
from tests.kits.targets import Target
from tests.kits.waiting import until

POLICIES: tuple[SchemaChangePolicy, ...] = ("lenient", "evolve")
SHADOW = "/* gh-ost */ {} INTO `_t_gho` (id, v, version)"
ONE_SIDE = ("RENAME TABLE t TO kept, _t_gho TO t",)


class Tooled(Play):
    """What a tool does to the table `t`, captured."""

    def __init__(self, tools: Tools) -> None:
        self.kafka, self.database, self.db = tools.kafka, tools.database, tools.db
        self.kind = "mariadb" if type(tools.database).__name__ == "MariaDB" else "mysql"
        self.config = tools.config()
        self.ran: list[str] = []
        self._beats = self._asked = 0

    def copies(self) -> int:
        """How many copies of the table are in its topic."""
        return len({event.copy.id for event in self.events("t") if event.copy is not None})


@pytest.fixture
def targets(request: pytest.FixtureRequest, unique: str) -> Iterator[list[Real]]:
    """Databases of their own: the source may be on the same server."""
    name = f"{unique}_target"
    with contextlib.ExitStack() as stack:
        made = []
        for kind in ("postgres", "mysql"):
            service = request.getfixturevalue(kind)
            service.create_database(name)
            stack.callback(service.drop_database, name)
            made.append(stack.enter_context(contextlib.closing(Real(Target(kind, service, name)))))
        yield made


def ghost(tools: Tools, alter: str, swap: tuple[str, ...]) -> None:
    """gh-ost 1.1's statements, in two chunks; each change of `t` is followed by what it plays into the
    shadow."""
    chunk = SHADOW.format("IGNORE") + " SELECT id, v, version FROM t"
    play, away = "REPLACE " + SHADOW.format("") + " VALUES", "DELETE /* gh-ost */ FROM `_t_gho` WHERE id ="
    tools.change(
        "DROP /* gh-ost */ TABLE IF EXISTS `_t_gho`", "DROP /* gh-ost */ TABLE IF EXISTS `_t_del`",
        "CREATE /* gh-ost */ TABLE `_t_ghc` (id BIGINT AUTO_INCREMENT PRIMARY KEY, hint VARCHAR(64) NOT NULL)",  # noqa: E501
        "CREATE /* gh-ost */ TABLE `_t_gho` LIKE `t`", f"ALTER /* gh-ost */ TABLE `_t_gho` {alter}",
        "INSERT INTO t (id, v, version) VALUES (100, 'before', 2)", f"{play} (100, 'before', 2)",
        f"INSERT {chunk} WHERE id < 30 LOCK IN SHARE MODE",
        "UPDATE t SET v = 'live', version = 3 WHERE id = 5", f"{play} (5, 'live', 3)",
        "UPDATE t SET v = 'ahead', version = 3 WHERE id = 41", f"{play} (41, 'ahead', 3)",
        "DELETE FROM t WHERE id = 7", f"{away} 7",
        f"INSERT {chunk} WHERE id >= 30 LOCK IN SHARE MODE",
        "UPDATE t SET id = 102, version = 4 WHERE id = 9", f"{away} 9", f"{play} (102, 'r9', 4)",
        "CREATE /* gh-ost */ TABLE `_t_del` (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=InnoDB "
        "COMMENT='ghost-cut-over-sentry'",
        "INSERT INTO t (id, v, version) VALUES (101, 'late', 5)", f"{play} (101, 'late', 5)",
        "DROP /* gh-ost */ TABLE IF EXISTS `_t_del`",
        *swap,
        "DROP /* gh-ost */ TABLE IF EXISTS `_t_ghc`", "DROP /* gh-ost */ TABLE IF EXISTS `_t_del`",
        "INSERT INTO t (v, version) VALUES ('behind', 6)", "UPDATE t SET v = 'y', version = 7 WHERE id = 3",
        "DELETE FROM t WHERE id = 11",
    )  # fmt: skip


def atomically(tools: Tools) -> None:
    ghost(tools, ALTER, ATOMIC)


def in_two_steps(tools: Tools) -> None:
    ghost(tools, ALTER, TWO_STEPS)


def by_triggers(tools: Tools) -> None:
    with Writer(tools.database, tools.db) as writer:
        writer.more()
        percona(tools, ALTER)
        writer.more()


@pytest.mark.parametrize("change", [atomically, in_two_steps, by_triggers])
def test_where_stored_values_are_kept_no_copy_is_needed(
    tools: Tools, targets: list[Real], change: Callable[[Tools], None]
) -> None:
    play = Tooled(tools)
    with play.capture() as unit:
        play.captured(unit)
        units = [PlayedUnit(real, play, "t", policy) for real in targets for policy in POLICIES]
        for each in units[::2]:
            assert each.apply().state == "ok"  # the others meet all at once
        change(tools)
        play.captured(unit)
        assert unit.stop() == 0, unit.output()
    for each in units:
        each.take_over()
        report = each.apply()
        assert (report.state, report.held, report.displaced) == ("ok", 0, 0), report.message
        assert differs(play, each) is None
        assert each.has("c")
        assert each.has("n") == (each.policy == "lenient")
    assert play.copies() == 0
    assert play.events("_t_gho") == play.events("_t_new") == []


@pytest.mark.parametrize(
    ("alter", "swap"),
    [
        (
            "ADD COLUMN g INT AS (version + 1) STORED",
            ATOMIC,
        ),  # what the rows have in it is known to the source alone
        ("ADD UNIQUE by_value (v)", ATOMIC),  # of equal values one row is left
        (ALTER, ONE_SIDE),
    ],
)
def test_where_values_change_a_copy_brings_them(
    tools: Tools, targets: list[Real], alter: str, swap: tuple[str, ...]
) -> None:
    tools.change("INSERT INTO t (id, v, version) VALUES (200, 'twice', 1), (201, 'twice', 1)")
    play = Tooled(tools)
    with play.capture() as unit:
        play.captured(unit)
        ghost(tools, alter, swap)
        play.captured(unit)
        units = [PlayedUnit(real, play, "t", policy) for real in targets for policy in POLICIES]
        after = max(stopped(each) for each in units)
        assert play.copies() == 0, "nothing but a copy that is asked for heals it"
        play.request_copy("t", after)
        tools.change(
            "INSERT INTO t (id, v, version) VALUES (300, 'meanwhile', 8)", "DELETE FROM t WHERE id = 13"
        )
        until(
            lambda: all(begun(play, each, after) for each in units), f"the copy; {unit.output()[-3000:]}", 300
        )
        play.captured(unit)
        assert unit.stop() == 0, unit.output()
    for each in units:
        each.take_over()
        report = each.apply()
        assert (report.state, report.held) == ("ok", 0), report.message
        assert differs(play, each) is None
    assert play.copies() == 1


def stopped(unit: Any) -> int:
    """The unit is stopped, and says what to do; returns behind which offset its copy begins."""
    report = unit.apply()
    assert report.state == "stopped", report.message
    assert report.copy is not None, report.message
    assert "rowlock copy" in report.message, report.message
    after: int = report.copy.after
    return after
