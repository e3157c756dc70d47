"""The captured tables that a change logged as a statement concerns, at its place of the log (R17).

The rules are in producer/statements/closure.py; here is what they rest on: the catalogue's objects, read once and kept until a statement
that could change them, and the proof that what is read now was so at the statement's place: no statement on what the
closure went over stands between there and the log's end as it was after the reading (producer/definitions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from producer.definitions.index import OBJECTS, StatementIndex
from producer.definitions.places import DefinitionPlace
from producer.definitions.proof import DefinitionReader
from producer.sources.catalog import Catalog
from producer.sources.source_objects import SourceObjects, read_objects
from producer.statements.closure import ImpactedTables, find_impacted_tables
from producer.statements.tokens import Token
from schemas.table.names import EXACT, NameRules, TableName
from schemas.wire.position import LogPoint


@dataclass(frozen=True, slots=True)
class _KnownObjects:
    """The objects that the catalogue showed; `at`: the place for which it was read, `until`: the log's end after the reading."""

    objects: SourceObjects
    at: LogPoint
    until: LogPoint


@dataclass(slots=True)
class ImpactAnalyzer:
    """`objects_changed`: where the stream saw the last statement that may change tables, views, triggers, routines or keys."""

    definitions: DefinitionReader
    catalog: Callable[[], Catalog]
    objects_changed: Callable[[], LogPoint]
    names: NameRules = EXACT
    _known: _KnownObjects | None = None

    def find_impact(
        self, place: DefinitionPlace, tokens: list[Token], db: str, captured: Iterable[TableName] = ()
    ) -> ImpactedTables:
        """Return which tables the statement at `place` may write. Raises what a reading of the catalogue raises.

        `captured`: one of these that was altered behind the statement may have had a cascading key then, so it is among them.
        """
        known = self._known
        if known is None or not known.at <= place.point or self.objects_changed() >= known.until:
            known = self._known = self._read_objects(place)
        found = find_impacted_tables(tokens, db, known.objects, self.names)
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
    """Return `found` if nothing that it rests on was changed between `at` and the reading at `until`. Pure.

    A captured table that was altered since may have had a cascading key at the statement: it is among those reached.
    """
    tables = found.tables or frozenset()
    for name in [OBJECTS, *sorted(tables - captured)]:
        last = index.find_last_statement(name, at, until, unchanged=True)
        if last is not None:
            what = "a view, trigger or routine" if name == OBJECTS else f"{name[0]}.{name[1]}"
            return ImpactedTables(
                None,
                f"what it reaches cannot be told: {what} was changed behind it (in file {last[0]} at {last[1]}), before capture "
                "read the catalogue",
            )
    altered = {name for name in captured if tables and index.find_last_statement(name, at, until) is not None}
    return ImpactedTables(tables | altered)
