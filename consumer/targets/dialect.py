"""Connections to configured targets. Only a dialect's own modules depend on its kind of database."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from consumer.errors import TargetConfigError
from consumer.ordering.model import TargetTable
from consumer.targets.base import ProgressStore
from consumer.targets.batches import BatchTarget, EventReading
from consumer.targets.session import SqlSession
from schemas.config.kinds.targets import find_target_kind

if TYPE_CHECKING:
    from schemas.config.model import TargetConfig


Reading = Callable[
    ["TargetConfig", TargetTable, tuple[tuple[str, str], ...]], AbstractContextManager[EventReading]
]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A kind of target."""

    name: str
    open: Callable[[TargetConfig, str], SqlSession | BatchTarget]
    """Connects; returns a `BatchTarget` if the kind's entry in schemas.config.kinds.targets has `batches`."""
    answers: str | None = None
    """The expected service at the target's address (schemas.io.endpoints), if its driver does not
    itself detect another one.
    """
    progress: Callable[[TargetConfig, str], ProgressStore] | None = None
    """Opens the progress store; None: the session is the store."""
    reading: Reading | None = None
    """For a target of events: opens a table's topic for comparison (target, table as it is written,
    values of its added columns).
    """


def load_dialect(target: TargetConfig) -> Dialect:
    """Return the dialect of a configured target; its module, and with it the driver, is imported on
    first use.
    """
    kind = find_target_kind(target.type)
    dialect: Dialect = getattr(import_module(kind.module), kind.attribute)
    return dialect


def open_target(target: TargetConfig, *, name: str) -> SqlSession | BatchTarget:
    """Connect to `target`, of any kind. `name` identifies the connection in the server's process list.

    Raises TransientError (not reachable) or TargetConfigError (password, database, grants).
    """
    return load_dialect(target).open(target, name)


def open_session(target: TargetConfig, *, name: str) -> SqlSession:
    """Connect to a `target` that has sessions.

    Raises what `open_target` raises, and TargetConfigError if it has none.
    """
    if find_target_kind(target.type).batches:
        raise TargetConfigError(f"rowlock cannot query rows of a target of type {target.type!r}")
    return cast(SqlSession, open_target(target, name=name))


def open_progress(target: TargetConfig, *, name: str) -> ProgressStore:
    """Connect to the progress store of units that write into `target`. Raises what `open_target` raises."""
    dialect = load_dialect(target)
    return (dialect.progress or dialect.open)(target, name)


def open_reading(
    target: TargetConfig, table: TargetTable, added: tuple[tuple[str, str], ...]
) -> AbstractContextManager[EventReading]:
    """Open the topic of a table for comparison.

    Raises TargetConfigError if such a target cannot be read, and within the block what reading raises.
    """
    reading = load_dialect(target).reading
    if reading is None:
        raise TargetConfigError(
            f"events of a target of type {target.type!r} cannot be read yet, so nothing was compared"
        )
    return reading(target, table, added)
