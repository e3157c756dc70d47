"""The captured tables that a change logged as a statement affects, at its place of the log.

The rules are in producer/statements/closure.py. This module supplies the catalog's objects, which are
read once and kept until a statement may change them. It also proves that they are valid at the
statement's place: no statement on the objects that the closure visited is between that place and the
log's end as it was after the reading (producer/definitions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from producer.definitions.index import OBJECTS, StatementIndex
from producer.definitions.proof import DefinitionReader
from producer.definitions.requests import DefinitionPlace
from producer.sources.catalog import Catalog
from producer.sources.source_objects import SourceObjects, read_objects
from producer.statements.closure import ImpactedTables, find_impacted_tables
from producer.statements.statement import Statement
from schemas.table.names import EXACT, NameRules, TableName
from schemas.wire.position import LogPoint


@dataclass(frozen=True, slots=True)
class _KnownObjects:
    """The objects that the catalog showed. `at`: the place for which it was read.

    `until`: the log's end after the reading.
    """

    objects: SourceObjects
    at: LogPoint
    until: LogPoint


@dataclass(slots=True)
class ImpactAnalyzer:
    """Finds the tables that statements affect.

    `objects_changed`: returns the place of the last statement in the stream that may change tables,
    views, triggers, routines or keys.
    """

    definitions: DefinitionReader
    catalog: Callable[[], Catalog]
    objects_changed: Callable[[], LogPoint]
    names: NameRules = EXACT
    _known: _KnownObjects | None = None

    def find_impact(
        self, place: DefinitionPlace, statement: Statement, captured: Iterable[TableName] = ()
    ) -> ImpactedTables:
        """Return the tables that the statement at `place` may write.

        Raises the errors of reading the catalog.

        A table of `captured` that was altered after the statement is included: it may have had a
        cascading key at that time.
        """
        known = self._known
        if known is None or not known.at <= place.point or self.objects_changed() >= known.until:
            known = self._known = self._read_objects(place)
        found = find_impacted_tables(
            statement.tokens, self.names.fold_name(statement.query.db), known.objects, self.names
        )
        if found.tables is None:
            return found
        return require_proven_impact(
            found, frozenset(captured), self.definitions.scan.index, place.point, known.until
        )

    def _read_objects(self, place: DefinitionPlace) -> _KnownObjects:
        objects, until = self.definitions.read_catalog(place, (), read_objects)
        return _KnownObjects(objects, place.point, until)


def require_proven_impact(
    found: ImpactedTables,
    captured: frozenset[TableName],
    index: StatementIndex,
    at: LogPoint,
    until: LogPoint,
) -> ImpactedTables:
    """Return `found` if no object that it depends on was changed between `at` and the reading at `until`.

    Pure.

    A captured table that was altered since is included: it may have had a cascading key at the
    statement.
    """
    tables = found.tables or frozenset()
    for name in [OBJECTS, *sorted(tables - captured)]:
        last = index.find_last_statement(name, at, until, unchanged=True)
        if last is not None:
            what = "a view, trigger or routine" if name == OBJECTS else f"{name[0]}.{name[1]}"
            return ImpactedTables(
                None,
                (
                    f"the tables that this statement changes cannot be determined: {what} was changed later "
                    f"(in file {last[0]} at {last[1]}), before capture read the catalog"
                ),
            )
    altered = {name for name in captured if tables and index.find_last_statement(name, at, until) is not None}
    return ImpactedTables(tables | altered)
