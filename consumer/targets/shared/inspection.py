"""SQLAlchemy's inspector over the connection that a target's session has open."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, create_engine, inspect
from sqlalchemy.exc import DBAPIError, SAWarning, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from consumer.errors import TransientError

if TYPE_CHECKING:
    from sqlalchemy.engine.reflection import Inspector


ErrorTranslator = Callable[[str], AbstractContextManager[None]]
"""(statement) → a context that translates the errors of a dialect's driver, such as
`MySqlLink.translate_errors`."""


class CatalogInspection:
    """Inspects a server's catalog over a connection that is open.

    A connection for each table would cost PostgreSQL several times the processor time of the reads: a new
    server process begins without a cache of the catalog.
    """

    def __init__(self, driver: str, where: str, translated: ErrorTranslator) -> None:
        """`driver`: SQLAlchemy's name of dialect and driver. `translated`: translates the driver's errors."""
        self._driver, self._where, self._translated = driver, where, translated
        self._connection: Any = None
        self._engine: Engine | None = None

    @contextmanager
    def open_inspector(self, connection: Any) -> Iterator[Inspector]:
        """Yield an inspector over the driver's `connection`, which is in autocommit mode. A transaction that
        was begun with BEGIN remains open.

        Raises what `translated` raises, and TransientError if SQLAlchemy cannot interpret the catalog.
        """
        try:
            with self._get_engine(connection).connect() as opened, warnings.catch_warnings():
                # The dialect reads types itself, also those of extensions, which SQLAlchemy does not know.
                warnings.filterwarnings("ignore", "Did not recognize type", SAWarning)
                yield inspect(opened)
        except SQLAlchemyError as error:
            if isinstance(error, DBAPIError) and error.orig is not None:
                with self._translated(error.statement or ""):
                    raise error.orig from error
            raise TransientError(f"the catalog of {self._where} cannot be read: {error}") from error

    def _get_engine(self, connection: Any) -> Engine:
        """Return the engine over a connection: it keeps facts about the server, and compiled queries."""
        if self._engine is None or self._connection is not connection:
            self._engine = create_engine(
                f"{self._driver}://",
                creator=lambda: connection,
                poolclass=StaticPool,
                pool_reset_on_return=None,
                skip_autocommit_rollback=True,
                use_native_hstore=False,  # its adapters would be registered with the session's connection
            )
            self._connection = connection
        return self._engine
