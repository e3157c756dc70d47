"""MySQL and MariaDB as targets: the assembly of their sessions, and their syntax where databases
differ.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from consumer.targets.bookkeeping import Bookkeeping
from consumer.targets.dialect import Dialect
from consumer.targets.dialect_components import DialectComponents
from consumer.targets.mysql.alterer import MySqlAlterer
from consumer.targets.mysql.apply import MySqlApplier
from consumer.targets.mysql.catalog import MySqlTargetCatalog
from consumer.targets.mysql.connection import FLAVOURS, MySqlLink
from consumer.targets.mysql.sql import quote
from consumer.targets.session import SqlSession
from consumer.targets.shared.common_syntax import (
    create_if_missing,
    insert_values,
    render_for_update,
    render_limit,
)
from consumer.targets.sql import Syntax

if TYPE_CHECKING:
    from schemas.config.model import TargetConfig

_BIN = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_TYPES = {
    "name": f"VARCHAR(100) {_BIN} NOT NULL",
    "topic": f"VARCHAR(249) {_BIN} NOT NULL",
    "int": "INT NOT NULL",
    "big": "BIGINT NOT NULL",
    "text": "LONGTEXT NOT NULL",
    "text?": "LONGTEXT NULL",
    "now": "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)",
    "id": "BIGINT NOT NULL AUTO_INCREMENT",
}
SYNTAX = Syntax(
    quote=quote,
    types=_TYPES,
    now="CURRENT_TIMESTAMP(3)",
    millis=lambda column: f"CAST(UNIX_TIMESTAMP({column}) * 1000 AS SIGNED)",
    create=lambda name, body: f"{create_if_missing(name, body)} ENGINE=InnoDB DEFAULT {_BIN}",
    locked=render_for_update,
    page=render_limit,
    insert=insert_values,
)


def build_bookkeeping(database: str) -> Bookkeeping:
    return Bookkeeping(database, SYNTAX)


def open_mysql(target: TargetConfig, name: str) -> SqlSession:
    """Return a connected session. Raises TransientError or TargetConfigError."""
    flavour = FLAVOURS[target.type]
    link, kept = MySqlLink(target, flavour, name), build_bookkeeping(target.database)
    return SqlSession(
        DialectComponents(
            link=link,
            books=kept,
            catalog=MySqlTargetCatalog(target, link),
            applier=MySqlApplier(link, kept),
            alterer=MySqlAlterer(link),
            fresh=partial(MySqlLink, target, flavour, f"{name} take-over"),
        )
    )


MYSQL = Dialect("mysql", open_mysql)
MARIADB = Dialect("mariadb", open_mysql)
