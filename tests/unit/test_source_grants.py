"""Rights and sight from the lines of SHOW GRANTS, foreign keys from the text of SHOW CREATE TABLE."""

from __future__ import annotations

import pytest

from producer.sources.binlog.flavour import BinlogFlavour
from producer.sources.grants import CatalogVisibility, Grants, list_hidden_objects, list_missing_grants
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from schemas.config.model import SourceConfig
from schemas.io.mysql_foreign_keys import describe_foreign_keys, parse_foreign_keys

SOURCE = SourceConfig.model_validate(
    {"type": "mariadb", "host": "h", "user": "u", "password": "p", "tables": ["bank.*"]}
)
ENOUGH = ["GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*AB'"]


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("GRANT TRIGGER ON *.* TO `u`@`%`", True),
        ("GRANT ALL PRIVILEGES ON `bank`.* TO `u`@`%`", True),
        ("GRANT SELECT, TRIGGER ON `ban_`.* TO `u`@`%`", True),
        (r"GRANT TRIGGER ON `ban\_`.* TO `u`@`%`", False),
        ("GRANT TRIGGER ON `bank`.`acct` TO `u`@`%`", False),
        ("GRANT EXECUTE ON FUNCTION `bank`.`f` TO `u`@`%`", False),
        ("GRANT `TRIGGER`@`%` TO `u`@`%`", False),
        ("GRANT SELECT (`TRIGGER`, `b`) ON `bank`.* TO `u`@`%`", False),
    ],
)
def test_triggers_are_seen_only_where_the_right_is(line: str, seen: bool) -> None:
    assert CatalogVisibility.from_grants([line], MARIADB_FLAVOUR.rights).can_see_triggers("bank") is seen


def test_what_is_taken_back_is_not_seen() -> None:
    lines = ["GRANT TRIGGER, SELECT ON *.* TO `u`@`%`", "REVOKE TRIGGER ON `bank`.* FROM `u`@`%`"]
    sight = CatalogVisibility.from_grants(lines, MYSQL_FLAVOUR.rights)
    assert not sight.can_see_triggers("bank")
    assert sight.can_see_triggers("other")
    assert not sight.can_see_all_tables(), "the tables of one database may be hidden"
    system = CatalogVisibility.from_grants(
        [lines[0], "REVOKE SELECT ON `mysql`.* FROM `u`@`%`"], MYSQL_FLAVOUR.rights
    )
    assert system.can_see_all_tables()


def test_a_column_right_is_no_table_right() -> None:
    lines = [*ENOUGH, "GRANT SELECT (`id`, `odd)name`), INSERT ON `bank`.`acct` TO `u`@`%`"]
    grants = Grants.parse_grants(lines)
    assert grants.columns == {("bank", "acct")}
    assert not grants.has_on_table("bank", "acct", "SELECT")
    assert grants.has_on_table("bank", "acct", "INSERT")
    assert [statement for _, statement in list_missing_grants(lines, MARIADB_FLAVOUR.rights, SOURCE)] == [
        "GRANT SELECT ON `bank`.* TO 'u'@'%';",
        "GRANT SELECT ON `bank`.`acct` TO 'u'@'%';",
    ]


def test_older_server_is_asked_for_the_rights_that_it_knows() -> None:
    older = MARIADB_FLAVOUR.rights.select_known({"REPLICATION CLIENT", "REPLICATION SLAVE"})
    assert (older.status, older.sources) == ("REPLICATION CLIENT", "REPLICATION CLIENT")
    lines = ["GRANT SELECT ON `bank`.* TO 'u'@'%'", "GRANT REPLICATION SLAVE ON *.* TO 'u'@'%'"]
    assert [statement for _, statement in list_missing_grants(lines, older, SOURCE)] == [
        "GRANT REPLICATION CLIENT ON *.* TO 'u'@'%';"
    ]
    newer = MARIADB_FLAVOUR.rights.select_known({"BINLOG MONITOR", "SLAVE MONITOR"})
    assert newer == MARIADB_FLAVOUR.rights


def test_foreign_keys_are_read_from_both_servers_texts() -> None:
    """MariaDB leaves backticks in names of constraints and columns as they are, MySQL doubles them."""
    keys = (
        "CREATE TABLE `child` (\n  `p``q` int DEFAULT NULL COMMENT 'CONSTRAINT `no` FOREIGN KEY',\n  "
        "CONSTRAINT `of a `parent`` FOREIGN KEY (`p`q`) REFERENCES `b``k`.`pa``r.x` (`i`d`) ON DELETE "
        "CASCADE,\n  CONSTRAINT `two` FOREIGN KEY (`a`, `b`) REFERENCES `p` (`a`, `b`) ON DELETE SET NULL "
        "ON UPDATE CASCADE,\n  CONSTRAINT `four` FOREIGN KEY (`a`) REFERENCES `p` (`a`) ON UPDATE NO "
        "ACTION,\n  CONSTRAINT `check` CHECK (`a` > 0)\n) ENGINE=InnoDB"
    )
    found = parse_foreign_keys(keys, "bank")
    assert [(key.name, key.columns, key.parent, key.action) for key in found] == [
        ("of a `parent`", ("p`q",), ("b`k", "pa`r.x"), "ON DELETE CASCADE"),
        ("two", ("a", "b"), ("bank", "p"), "ON DELETE SET NULL ON UPDATE CASCADE"),
        ("four", ("a",), ("bank", "p"), ""),
    ]
    assert parse_foreign_keys(keys.replace("`of a `parent``", "`of a ``parent```"), "bank") == found
    assert describe_foreign_keys(found) == [
        "of a `parent`: ON DELETE CASCADE (references b`k.pa`r.x)",
        "two: ON DELETE SET NULL ON UPDATE CASCADE (references bank.p)",
    ]


@pytest.mark.parametrize(
    ("line", "mariadb", "expected"),
    [
        ("GRANT ALL PRIVILEGES ON *.* TO `u`@`%`", True, []),
        ("GRANT SELECT ON `bank`.* TO `u`@`%`", True, ["TRIGGER", "SHOW CREATE ROUTINE"]),
        ("GRANT SELECT ON *.* TO `u`@`%`", False, ["TRIGGER"]),
        ("GRANT TRIGGER, SHOW VIEW ON *.* TO `u`@`%`", False, ["SHOW_ROUTINE"]),
    ],
)
def test_what_is_hidden_is_said_with_the_right_that_shows_it(
    line: str, mariadb: bool, expected: list[str]
) -> None:
    flavour = MARIADB_FLAVOUR if mariadb else MYSQL_FLAVOUR
    found = list_hidden_objects(
        CatalogVisibility.from_grants([line], flavour.rights), SOURCE, {flavour.rights.routines}
    )
    assert [
        statement.partition(" ")[2].partition(" ON ")[0].partition(",")[0] for _, statement in found
    ] == expected


@pytest.mark.parametrize(
    ("flavour", "expected"),
    [
        (MARIADB_FLAVOUR, "GRANT SELECT ON mysql.proc TO 'u'@'%';"),  # before 11.3
        (MYSQL_FLAVOUR, "GRANT SELECT ON *.* TO 'u'@'%';"),  # before 8.0.20
    ],
)
def test_server_without_the_right_to_see_routines_gets_another_grant(
    flavour: BinlogFlavour, expected: str
) -> None:
    """GRANT SHOW CREATE ROUTINE is a syntax error on MariaDB 10.11."""
    line = "GRANT TRIGGER, SHOW VIEW ON *.* TO `u`@`%`"
    visibility = CatalogVisibility.from_grants([line], flavour.rights)
    [(_, statement)] = list_hidden_objects(visibility, SOURCE, {"CREATE ROUTINE", "SHOW VIEW"})
    assert statement == expected
    granted = CatalogVisibility.from_grants([line, statement.rstrip(";") + " "], flavour.rights)
    assert list_hidden_objects(granted, SOURCE, {"CREATE ROUTINE", "SHOW VIEW"}) == []
