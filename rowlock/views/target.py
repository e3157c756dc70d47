"""A target as the command line reads it: progress, held rows, displaced rows. It never writes there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from consumer.errors import ConsumerError, MissingGrantError, RefusedError, TargetConfigError
from consumer.ordering.model import ApplyUnit, Held, LaneProgress, TargetTable, UnitState
from consumer.targets.base import Session
from consumer.targets.dialect import open_session, open_target
from rowlock.errors import CommandError
from schemas.config.kinds.sources import SOURCE_KINDS
from schemas.config.model import SourceConfig, TargetConfig
from schemas.table.model import Key, Row


class TargetView(Session, Protocol):
    """A session with the reads that status and quarantine need beyond those of apply."""

    def topics(self, pipeline: str) -> list[str]:
        """Return the topics of which `pipeline` has a unit here."""

    def held(self, unit: ApplyUnit) -> list[Held]:
        """Return the quarantine entries of a unit by (offset, part)."""

    def displaced(self, pipeline: str) -> dict[str, int]:
        """Return topic → rows in `rowlock_displaced`, without topics that displaced nothing."""


@contextlib.contextmanager
def target_session(target: TargetConfig, name: str, purpose: str) -> Iterator[TargetView]:
    """Open a connection to a target; one that takes whole batches has progress and quarantine, and no rows to read.

    Raises CommandError that names it, also for errors inside the block.
    """
    try:
        session = cast(TargetView, open_target(target, name=f"rowlock {purpose}"))
        with contextlib.closing(session):
            yield session
    except ConsumerError as error:
        raise CommandError(f"target {name}: {error}") from error


@contextlib.contextmanager
def source_session(source: SourceConfig, name: str, database: str, purpose: str) -> Iterator[TargetView]:
    """Open a source with the same code that reads targets: rows by key and by page, as wire values."""
    if SOURCE_KINDS[source.type].selected:
        raise CommandError(
            f"source {name}: rows of a source of type {source.type} cannot be read by key yet: compare them by other means"
        )
    fields = {field: getattr(source, field) for field in ("type", "host", "port", "user", "password", "tls")}
    same = TargetConfig(database=database, **fields)
    try:
        session = cast(TargetView, open_session(same, name=f"rowlock {purpose}"))
        with contextlib.closing(session):
            yield session
    except ConsumerError as error:
        raise CommandError(f"source {name}: {error}") from error


def known_topics(session: TargetView, pipeline: str) -> set[str]:
    """Return the topics of which `pipeline` has a unit in the target; none before the first apply made the tables."""
    try:
        return set(session.topics(pipeline))
    except MissingGrantError:
        raise
    except TargetConfigError as error:
        if "rowlock_unit" in str(error):
            return set()
        raise


def progress(
    session: TargetView, known: set[str], unit: ApplyUnit
) -> tuple[list[LaneProgress], UnitState | None]:
    """Read a unit's progress. `known`: topics that have a unit here (`topics`); others were never applied."""
    return session.read(unit) if unit.topic in known else ([], None)


def rows_with(view: TargetView, table: TargetTable, keys: Sequence[Key]) -> list[Row]:
    """Return the rows that have these keys. Of a key whose values the server refuses (a zero date in PostgreSQL) it has no row."""
    try:
        return view.fetch_keys(table, keys)
    except RefusedError:
        if len(keys) == 1:
            return []
    half = len(keys) // 2  # the refused key is alone in the end, and hides no other
    return rows_with(view, table, keys[:half]) + rows_with(view, table, keys[half:])
