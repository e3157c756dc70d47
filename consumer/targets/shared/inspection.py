"""SQLAlchemy's inspector over a short connection of its own; catalogs are read rarely, never on the
data path.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Engine, create_engine, inspect
from sqlalchemy.exc import DBAPIError, SAWarning, SQLAlchemyError
from sqlalchemy.pool import NullPool

from consumer.errors import TransientError

if TYPE_CHECKING:
    from sqlalchemy.engine.reflection import Inspector

    from schemas.config.model import TargetConfig


ErrorTranslator = Callable[[str], AbstractContextManager[None]]
"""(statement) → a context that translates the errors of a dialect's driver, such as
`MySqlLink.translate_errors`."""


@contextmanager
def open_inspector(
    target: TargetConfig, driver: str, tls: Mapping[str, Any], translated: ErrorTranslator
) -> Iterator[Inspector]:
    """Yield an inspector of `target`. `tls`: the driver's arguments; `translated`: translates the
    driver's errors.

    Raises what `translated` raises, and TransientError if SQLAlchemy cannot interpret the catalog.
    """
    url = URL.create(
        driver, target.user, target.password.get_secret_value(), target.host, target.port, target.database
    )
    engine = _make_engine(url, tuple(sorted(tls.items())))
    try:
        with engine.connect() as connection, warnings.catch_warnings():
            # The dialect reads types itself, also those of extensions, which SQLAlchemy does not know.
            warnings.filterwarnings("ignore", "Did not recognize type", SAWarning)
            yield inspect(connection)
    except SQLAlchemyError as error:
        if isinstance(error, DBAPIError) and error.orig is not None:
            with translated(error.statement or ""):
                raise error.orig from error
        raise TransientError(f"the catalog of {target.host}:{target.port} cannot be read: {error}") from error


@lru_cache(maxsize=8)
def _make_engine(url: URL, tls: tuple[tuple[str, Any], ...]) -> Engine:
    """Return the engine of a target.

    It keeps no connection, only facts about the server and compiled queries.
    """
    return create_engine(url, poolclass=NullPool, connect_args=dict(tls))
