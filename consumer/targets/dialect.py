"""What a kind of target database can do, as data, and the way from a configured target to a session.

Nothing outside the dialect's own module asks which database it is: code asks for a capability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from consumer.errors import TargetConfigError
from consumer.targets.session import SqlSession

if TYPE_CHECKING:
    from schemas.config import TargetConfig


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the code above the dialects may ask. Lengths are in characters."""

    transactional_ddl: bool  # False: DDL and TRUNCATE commit implicitly, so a RUNNING mark must come first
    identifier_length: int
    index_names_per_schema: bool  # True: an index name is unique in the schema, not in the table
    exact_text_keys: bool  # True: text compares exactly; False: by the column's collation, often without case
    storage_engines: bool  # True: a table may have an engine without transactions


@dataclass(frozen=True, slots=True)
class Dialect:
    """A kind of target. `open` connects; `sqlalchemy`: driver name of the inspector's connection."""

    name: str
    capabilities: Capabilities
    sqlalchemy: str
    open: Callable[[TargetConfig, str], SqlSession]


#: type of TargetConfig → (module, attribute): the module, and with it its driver, is imported on first use.
_DIALECTS = {
    "postgres": ("consumer.targets.postgres", "POSTGRES"),
    "mysql": ("consumer.targets.mysql", "MYSQL"),
    "mariadb": ("consumer.targets.mysql", "MARIADB"),
    "tdsql": ("consumer.targets.mysql", "TDSQL"),
}


def dialect_of(target: TargetConfig) -> Dialect:
    """Return the dialect of a configured target. Raises TargetConfigError when it is not built."""
    found = _DIALECTS.get(target.type)
    if found is None:
        built = ", ".join(sorted(_DIALECTS))
        raise TargetConfigError(f"targets of type {target.type} are not built yet; built are: {built}")
    module, attribute = found
    dialect: Dialect = getattr(import_module(module), attribute)
    return dialect


def open_session(target: TargetConfig, *, name: str) -> SqlSession:
    """Connect to `target`. `name` identifies the connection in the server's process list.

    Raises TransientError (not reachable) or TargetConfigError (password, database, grants).
    """
    return dialect_of(target).open(target, name)
