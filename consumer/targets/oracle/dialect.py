"""Oracle as a target: the assembly of its sessions, and its syntax where databases differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer.targets.bookkeeping import Bookkeeping
from consumer.targets.dialect import Dialect
from consumer.targets.dialect_components import DialectComponents
from consumer.targets.oracle.alterer import OracleAlterer
from consumer.targets.oracle.apply import OracleApplier
from consumer.targets.oracle.catalog import OracleTargetCatalog
from consumer.targets.oracle.connection import Open, OracleLink
from consumer.targets.oracle.sql import (
    quote_identifier,
    render_create,
    render_insert,
    render_locking_select,
    render_page,
)
from consumer.targets.session import SqlSession
from consumer.targets.sql import Syntax
from schemas.io.oracle_connection import open_oracle

if TYPE_CHECKING:
    from schemas.config.model import TargetConfig

_TYPES = {
    "name": "VARCHAR2(100 CHAR) NOT NULL",
    "topic": "VARCHAR2(249 CHAR) NOT NULL",
    "int": "NUMBER(10) NOT NULL",
    "big": "NUMBER(19) NOT NULL",
    "text": "CLOB NOT NULL",
    "text?": "CLOB",
    "now": "TIMESTAMP(3) WITH LOCAL TIME ZONE DEFAULT SYSTIMESTAMP NOT NULL",
    "id": "NUMBER(19) GENERATED ALWAYS AS IDENTITY",
}


def _render_milliseconds(column: str) -> str:
    """Return an expression for milliseconds since 1970.

    An interval has days, hours, minutes and seconds; the session is in UTC
    (schemas.io.oracle_connection).
    """
    since = f"({column} - TIMESTAMP '1970-01-01 00:00:00')"
    whole = (("DAY", 86_400_000), ("HOUR", 3_600_000), ("MINUTE", 60_000), ("SECOND", 1000))
    parts = (f"TRUNC(EXTRACT({part} FROM {since})) * {millis}.0" for part, millis in whole)
    return f"ROUND({' + '.join(parts)} + CAST(TO_CHAR({column}, 'FF3') AS NUMBER(3)))"


SYNTAX = Syntax(
    quote=quote_identifier,
    types=_TYPES,
    now="SYSTIMESTAMP",
    millis=_render_milliseconds,
    create=render_create,
    locked=render_locking_select,
    page=render_page,
    insert=render_insert,
)


def open_sql_session(target: TargetConfig, name: str, connect: Open) -> SqlSession:
    """Return a connected session with connections opened by `connect`. Raises TransientError or
    TargetConfigError.

    The bookkeeping tables are in the schema of the user.
    """
    link, kept = OracleLink(target, name, connect), Bookkeeping(target.user, SYNTAX)
    return SqlSession(
        DialectComponents(
            link=link,
            books=kept,
            catalog=OracleTargetCatalog(link),
            applier=OracleApplier(link, kept),
            alterer=OracleAlterer(link),
            fresh=lambda: OracleLink(target, f"{name} take-over", connect),
        )
    )


def open_oracle_target(target: TargetConfig, name: str) -> SqlSession:
    return open_sql_session(target, name, open_oracle)


ORACLE = Dialect("oracle", open_oracle_target)
