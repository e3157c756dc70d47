"""Examples for the page of effects: changes logged as statements in a small source, and other content of
a log or table.
"""

from __future__ import annotations

from typing import NamedTuple

from producer.definitions.proof import DocumentedEffect
from producer.sources.grants import CatalogVisibility
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from producer.sources.source_objects import SourceObjects
from schemas.table.names import NameRules

CAPTURED = frozenset([("bank", "acct"), ("bank", "child")])
NAMES = NameRules(folds=False)
_ALL = ("GRANT SELECT, TRIGGER, SHOW VIEW, EXECUTE ON *.* TO `u`@`%`",)
_TABLES_ONLY = ("GRANT TRIGGER ON *.* TO `u`@`%`",)
_NOTHING = ("GRANT SELECT ON `bank`.* TO `u`@`%`",)


class LoggedChange(NamedTuple):
    """An example of a logged change."""

    sql: str
    hidden: tuple[str, ...] = _ALL
    """The grants of a user that does not see everything."""

    @property
    def shown(self) -> str:
        if self.hidden == _NOTHING:
            return f"{self.sql} (user with SELECT on bank only)"
        return f"{self.sql} (user without sight of routines)" if self.hidden == _TABLES_ONLY else self.sql


def source(grants: tuple[str, ...]) -> SourceObjects:
    """Return a source as the user sees it."""
    tables = ["acct", "child", "log", "parent", "traced"]
    return SourceObjects(
        visibility=CatalogVisibility.from_grants(grants, MYSQL_FLAVOUR.rights),
        kinds={("bank", name): "table" for name in tables} | {("bank", "v"): "view"},
        triggers={("bank", "traced"): (("bank", "UPDATE acct SET n = n + 1"),)},
        views={("bank", "v"): "select `bank`.`acct`.`id` AS `id` from `bank`.`acct`"},
        routines={
            ("bank", "f"): "BEGIN UPDATE acct SET n = n + 1; RETURN 1; END",
            ("bank", "dynamic"): "BEGIN PREPARE s FROM @x; EXECUTE s; END",
        },
        cascades={("bank", "parent"): frozenset([("bank", "child")])},
    )


EXAMPLES: tuple[LoggedChange, ...] = (
    LoggedChange("UPDATE acct SET n = 1"),
    LoggedChange("INSERT INTO log SELECT * FROM acct"),
    LoggedChange("UPDATE log, acct SET log.x = acct.n"),
    LoggedChange("INSERT INTO v VALUES (1)"),
    LoggedChange("INSERT INTO traced VALUES (1)"),
    LoggedChange("DELETE FROM parent"),
    LoggedChange("INSERT INTO log VALUES (f(1))"),
    LoggedChange("SELECT f(1)"),
    LoggedChange("CALL dynamic()"),
    LoggedChange("LOAD DATA INFILE 'x' INTO TABLE acct"),
    LoggedChange("INSERT INTO a_temporary_table SELECT * FROM acct"),
    LoggedChange("CREATE TEMPORARY TABLE x SELECT f(1)"),
    LoggedChange("INSERT INTO log VALUES (NOW())", _TABLES_ONLY),
    LoggedChange("INSERT INTO log VALUES (g(1))", _TABLES_ONLY),
    LoggedChange("INSERT INTO log VALUES (1)", _NOTHING),
)

EFFECTS: tuple[DocumentedEffect, ...] = (
    DocumentedEffect("a table that was captured is missing at a start", "the table",
     "cause `dropped`; what the log still holds of it is not published"),
    DocumentedEffect("a table that was captured became unfit (engine, key, types, cascading foreign keys)",
     "the table", "cause `unfit`"),
    DocumentedEffect("a table that was captured is taken out of `tables:`", "the table",
     "cause `deselected`; it has no apply unit, and nothing is shown, until it is selected again"),
    DocumentedEffect("a table that was never captured is unfit", "nothing",
     "it is left out, with its reason, and begins once it is fit"),
    DocumentedEffect("a pattern of `tables:` that takes no table yet", "a warning",
     "its tables are captured when they are created"),
    DocumentedEffect("rows that do not fit the active definition", "the table", "cause `definition`"),
    DocumentedEffect("a definition that cannot be proven for its place of the log", "the table",
     "cause `definition`"),
    DocumentedEffect("anything of a table that is not captured: definition, metadata, row "
    "images, compression, statements", "nothing",
           "what concerns no captured table never matters"),
    DocumentedEffect("rows of a transaction that is rolled back", "nothing",
     "rows are published once their transaction's commit is known"),
    DocumentedEffect("XA COMMIT of a transaction that was prepared before capture began", "what it may reach",
     "cause `xa`: which rows it changed is not known"),
    DocumentedEffect("XA COMMIT of rows of a table that a statement has concerned since XA PREPARE, or that "
    "a purged log file has", "the table", "cause `xa`"),
    DocumentedEffect("TRUNCATE that may be of a temporary table hiding the captured one (a session in "
    "STATEMENT; MariaDB: also MIXED)", "the table",
           "cause `statement`; the target keeps its rows"),
    DocumentedEffect("an ALTER, OPTIMIZE TABLE or a tool's swap that may have changed values by its "
    "session's settings (MySQL: times of an hour that the time zone has twice; dates that a sql_mode without "
    "STRICT does not allow; CHAR under PAD_CHAR_TO_FULL_LENGTH)", "the table",
           "cause `rows-replaced`, if the source has a row that may be one of them, "
           "or does not answer within 3 s"),
    DocumentedEffect("a statement with names that cannot be read: in a character set of its client that has "
    "no decoder, or in brackets (MariaDB, sql_mode MSSQL)", "the source",
     "it may concern every table: each of them stops"),
    DocumentedEffect("an event of an unknown type", "the source",
     "it might carry rows: the server is newer than rowlock"),
    DocumentedEffect("an INCIDENT event", "the source", "the server reports that it lost events"),
)  # fmt: skip
