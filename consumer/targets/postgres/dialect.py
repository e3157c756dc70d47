"""PostgreSQL as a target: how a session is put together, and how it writes what databases write differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer.targets.bookkeeping.books import Books
from consumer.targets.dialect import Dialect
from consumer.targets.dialect_components import DialectComponents
from consumer.targets.postgres.altering import PostgresAlterer
from consumer.targets.postgres.apply import PostgresApplier
from consumer.targets.postgres.catalogue import PostgresCatalogue
from consumer.targets.postgres.connection import PostgresLink
from consumer.targets.postgres.sql import quote
from consumer.targets.session import SqlSession
from consumer.targets.shared.common_syntax import create_if_missing, for_update, insert_values, limited
from consumer.targets.sql import Syntax
from schemas.io.endpoints import POSTGRES as SERVER

if TYPE_CHECKING:
    from schemas.config.model import TargetConfig

#: Where the bookkeeping tables are, whatever the user's search_path says.
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
    locked=for_update,
    page=limited,
    insert=insert_values,
)


def books() -> Books:
    return Books(BOOKS_SCHEMA, SYNTAX)


def open_postgres(target: TargetConfig, name: str) -> SqlSession:
    """Return a connected session. Raises TransientError or TargetConfigError."""
    link, kept = PostgresLink(target, name), books()
    return SqlSession(
        DialectComponents(
            link=link,
            books=kept,
            catalogue=PostgresCatalogue(target, link),
            applier=PostgresApplier(link, kept),
            alterer=PostgresAlterer(link),
            fresh=lambda: PostgresLink(target, f"{name} take-over"),
        )
    )


POSTGRES = Dialect("postgres", open_postgres, answers=SERVER)
