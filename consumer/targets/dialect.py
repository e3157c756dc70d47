"""The way from a configured target to a session. Nothing outside a dialect's own modules asks which database it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from consumer.targets.base import ProgressStore
from consumer.targets.session import SqlSession
from schemas.config.target_kinds import TARGET_KINDS

if TYPE_CHECKING:
    from schemas.config.model import TargetConfig


@dataclass(frozen=True, slots=True)
class Dialect:
    """A kind of target. `open`: connects.

    `progress`: opens the progress store; None: the session is it.
    `answers`: what is at the address of such a target (schemas.io.endpoints), where its driver does not tell that it met something
    else.
    """

    name: str
    open: Callable[[TargetConfig, str], SqlSession]
    answers: str | None = None
    progress: Callable[[TargetConfig, str], ProgressStore] | None = None


def dialect_of(target: TargetConfig) -> Dialect:
    """Return the dialect of a configured target; its module, and with it the driver, is imported on first use."""
    kind = TARGET_KINDS[target.type]
    dialect: Dialect = getattr(import_module(kind.module), kind.attribute)
    return dialect


def open_session(target: TargetConfig, *, name: str) -> SqlSession:
    """Connect to `target`. `name` identifies the connection in the server's process list.

    Raises TransientError (not reachable) or TargetConfigError (password, database, grants).
    """
    return dialect_of(target).open(target, name)


def open_progress(target: TargetConfig, *, name: str) -> ProgressStore:
    """Connect to where progress of units into `target` is kept. Raises what `open_session` raises."""
    dialect = dialect_of(target)
    return (dialect.progress or dialect.open)(target, name)
