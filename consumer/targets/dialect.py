"""The way from a configured target to a session. Nothing outside a dialect's own modules asks which database it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from consumer.targets.session import SqlSession

if TYPE_CHECKING:
    from schemas.config import TargetConfig


@dataclass(frozen=True, slots=True)
class Dialect:
    """A kind of target. `open`: connects."""

    name: str
    open: Callable[[TargetConfig, str], SqlSession]


#: type of TargetConfig → (module, attribute): the module, and with it its driver, is imported on first use.
_DIALECTS = {
    "postgres": ("consumer.targets.postgres", "POSTGRES"),
    "mysql": ("consumer.targets.mysql", "MYSQL"),
    "mariadb": ("consumer.targets.mysql", "MARIADB"),
}


def dialect_of(target: TargetConfig) -> Dialect:
    """Return the dialect of a configured target: a configuration names only what is built."""
    module, attribute = _DIALECTS[target.type]
    dialect: Dialect = getattr(import_module(module), attribute)
    return dialect


def open_session(target: TargetConfig, *, name: str) -> SqlSession:
    """Connect to `target`. `name` identifies the connection in the server's process list.

    Raises TransientError (not reachable) or TargetConfigError (password, database, grants).
    """
    return dialect_of(target).open(target, name)
