"""A target as the command line reads it: progress, quarantine, displaced rows. It never writes to the
target.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from consumer.errors import ConsumerError, TableMissingError, TransientError
from consumer.ordering.model import ApplyUnit, LaneProgress, TargetTable, UnitState
from consumer.tables.source_tables import as_target
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.targets.base import UnitTarget
from consumer.targets.dialect import load_dialect, open_session, open_target
from consumer.targets.session import SqlSession
from consumer.targets.shared.keyed_reads import find_under_keys
from rowlock.errors import CommandError
from rowlock.views.source import has_view, source_view
from schemas.config.model import SourceConfig, TargetConfig
from schemas.io.endpoints import explain_wrong_service
from schemas.problems import Problem
from schemas.table.model import Key, Row

if TYPE_CHECKING:
    from producer.sources.source_view import SourceView

T = TypeVar("T")


@contextlib.contextmanager
def target_session(target: TargetConfig, name: str, purpose: str) -> Iterator[UnitTarget]:
    """Open a connection to a target. A target that takes whole batches has progress and quarantine, but
    no rows to read.

    Raises CommandError that names the target, also for errors in the block.
    """
    try:
        session = open_target(target, name=f"rowlock {purpose}")
        with contextlib.closing(session):
            yield session
    except ConsumerError as error:
        raise CommandError.wrap_error(f"target {name}", error) from error


def explain_wrong_target(target: TargetConfig, error: BaseException | None) -> Problem | None:
    """Return the problem if something else than the target answers at its address. None: nothing does, or the
    target itself.

    `error`: the one with which the target could not be opened.
    """
    expected = load_dialect(target).answers
    if not expected or not isinstance(error, TransientError):
        return None
    other = explain_wrong_service(target.host, target.port, expected)
    return Problem(other, "correct host and port of the target") if other else None


class RowsView(Protocol):
    """Reads rows of tables, by page and by key, as wire values."""

    def fetch_rows(self, table: TargetTable, after: Key | None, limit: int) -> list[Row]:
        """Return up to `limit` rows after a key, in the order of the key's index."""

    def fetch_keys(self, table: TargetTable, keys: Sequence[Key]) -> list[Row]:
        """Return the rows with exactly these keys."""


class _SourceRows:
    """Rows that a source reads through its own view."""

    def __init__(self, view: SourceView) -> None:
        self._view = view

    def fetch_rows(self, table: TargetTable, after: Key | None, limit: int) -> list[Row]:
        return self._view.fetch_rows(table.table, after, limit)

    def fetch_keys(self, table: TargetTable, keys: Sequence[Key]) -> list[Row]:
        return self._view.fetch_keys(table.table, keys)


@contextlib.contextmanager
def source_session(source: SourceConfig, name: str, database: str, purpose: str) -> Iterator[RowsView]:
    """Open a source to read its rows, through its own view or with the code that reads targets.

    Raises CommandError, also for errors in the block.
    """
    if has_view(source):
        with source_view(source, name) as view:
            yield _SourceRows(view)
        return
    try:
        session = open_session(as_target(source, database), name=f"rowlock {purpose}")
        with contextlib.closing(session):
            yield session
    except ConsumerError as error:
        raise CommandError.wrap_error(f"source {name}", error) from error


def read_known_topics(session: UnitTarget, pipeline: str) -> set[str]:
    """Return the topics with a unit of `pipeline` in the target; none before the first apply has created
    the tables.
    """
    return _read_or_default(set, lambda: set(session.list_unit_topics(pipeline)))


def read_known_units(session: SqlSession, pipeline: str) -> dict[str, UnitState]:
    """Return topic → stored state of its unit of `pipeline`; nothing before the first apply has created
    the tables.
    """
    return _read_or_default(dict, lambda: dict(session.read_unit_states(pipeline)))


def _read_or_default(nothing: Callable[[], T], read: Callable[[], T]) -> T:
    """Return the result of `read`, or `nothing()` if the table that it reads does not exist. Other errors
    are raised.
    """
    try:
        return read()
    except TableMissingError:
        return nothing()


def read_unit_definitions(session: UnitTarget, pipeline: str) -> dict[str, StoredDefinition]:
    """Return topic → the definition of its unit of `pipeline`, sorted by topic.

    A unit without a definition, or in the middle of a schema change, is left out.
    """
    found = {}
    for topic in sorted(read_known_topics(session, pipeline)):
        _, state = session.read_progress(ApplyUnit(pipeline, topic), lanes=False)
        if state is not None and state.definition is not None and state.ddl is None:
            found[topic] = decode_stored(state.definition)
    return found


def read_unit_progress(
    session: UnitTarget, known: set[str], unit: ApplyUnit
) -> tuple[list[LaneProgress], UnitState | None]:
    """Return a unit's progress. `known`: the topics with a unit in the target; others were never applied."""
    return session.read_progress(unit) if unit.topic in known else ([], None)


def fetch_rows_by_key(view: RowsView, table: TargetTable, keys: Sequence[Key]) -> list[Row]:
    """Return the rows with these keys. A key with values that the server refuses (a zero date in
    PostgreSQL) has no row.
    """
    return find_under_keys(lambda some: view.fetch_keys(table, some), keys)
