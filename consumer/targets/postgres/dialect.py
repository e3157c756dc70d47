"""PostgreSQL as a target: the assembly of its sessions, and its syntax where databases differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer.targets.bookkeeping import Bookkeeping
from consumer.targets.dialect import Dialect
from consumer.targets.dialect_components import DialectComponents
from consumer.targets.postgres.alterer import PostgresAlterer
from consumer.targets.postgres.apply import PostgresApplier
from consumer.targets.postgres.catalog import PostgresTargetCatalog
from consumer.targets.postgres.connection import PostgresLink
from consumer.targets.postgres.sql import quote
from consumer.targets.session import SqlSession
from consumer.targets.shared.common_syntax import (
    create_if_missing,
    insert_values,
    render_for_update,
    render_limit,
)
from consumer.targets.sql import Syntax
from schemas.io.endpoints import POSTGRES_SERVER as SERVER

if TYPE_CHECKING:
    from schemas.config.model import TargetConfig

#: The schema of the bookkeeping tables, for any search_path of the user.
BOOKS_SCHEMA = "public"
_TYPES = {
    "name": "text NOT NULL",
    "topic": "text NOT NULL",
    "int": "integer NOT NULL",
    "big": "bigint NOT NULL",
    "text": "text NOT NULL",
    "text?": "text",
    "now": "timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "id": "bigint GENERATED ALWAYS AS IDENTITY",
}
SYNTAX = Syntax(
    quote=quote,
    types=_TYPES,
    now="CURRENT_TIMESTAMP(3)",
    millis=lambda column: f"(EXTRACT(EPOCH FROM {column}) * 1000)::bigint",
    create=create_if_missing,
    locked=render_for_update,
    page=render_limit,
    insert=insert_values,
)


def build_bookkeeping() -> Bookkeeping:
    return Bookkeeping(BOOKS_SCHEMA, SYNTAX)


def open_postgres(target: TargetConfig, name: str) -> SqlSession:
    """Return a connected session. Raises TransientError or TargetConfigError."""
    link, kept = PostgresLink(target, name), build_bookkeeping()
    return SqlSession(
        DialectComponents(
            link=link,
            books=kept,
            catalog=PostgresTargetCatalog(target, link),
            applier=PostgresApplier(link, kept),
            alterer=PostgresAlterer(link),
            fresh=lambda: PostgresLink(target, f"{name} take-over"),
        )
    )


POSTGRES = Dialect("postgres", open_postgres, answers=SERVER)
