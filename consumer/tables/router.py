"""Routing: the target table of a source table's events, and its required definition.

Without I/O. Routing comes first; hashing, locking and net change work on the target's table and keys.
The columns of `add:` hold the same text in every row of one source; consumer.tables.event_decoder
appends them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Literal

from msgspec import structs

from consumer.errors import TargetConfigError
from consumer.ordering.model import TargetTable, TargetTopic, TopicOptions
from consumer.tables.column_names import follow_route
from consumer.tables.stored import StoredDefinition
from consumer.targets.checks.column_fit import find_lossy_columns
from consumer.targets.checks.column_spelling import explain_missing_columns
from schemas.config.kinds.topics import TopicConfig
from schemas.config.model import PipelineConfig
from schemas.findings import Finding
from schemas.table.filters import compile_row_filter
from schemas.table.model import Column, ColumnType, IndexPart, Key, Kind, Row, Table, UniqueIndex
from schemas.table.names import NameRules, format_table_text
from schemas.table.patterns import fill_place, fill_template, is_pattern_match

ADDED_LENGTH = 64
"""Characters of a column that `add:` creates: a source's name or a short literal."""
SchemaChangePolicy = Literal["ignore", "lenient", "evolve", "stop"]
"""The policies of `schema_changes`: what a change of a table's definition does to its target table."""


@dataclass(frozen=True, slots=True)
class TableRoute:
    """A route of a pipeline.

    `from_`: "db.table" pattern of the source. `to`: "schema.table" template. `add`: (column, template)
    pairs. `topic`: how its topics are written, if the target is Kafka.
    """

    from_: str
    to: str
    add: tuple[tuple[str, str], ...] = ()
    policy: SchemaChangePolicy = "lenient"
    topic: TopicOptions | None = None
    renames: tuple[tuple[str, str], ...] = ()
    """(column, its name in the target) pairs."""
    keeps_removed_rows: bool = False
    """See ResolvedRoute."""

    @classmethod
    def build_routes(
        cls, config: PipelineConfig, *, topics: Mapping[str, str] | None = None
    ) -> tuple[TableRoute, ...]:
        """Return the routes of a pipeline.

        `topics`: source → its type, if the pipeline's target takes events.
        """
        return tuple(
            cls(
                each.from_,
                each.to,
                tuple(each.add.items()),
                each.schema_changes or config.schema_changes,
                None if topics is None else build_topic_options(each.kafka or TopicConfig(), topics),
                tuple(each.rename.columns.items()),
                each.partitions == "keep",
            )
            for each in config.routes
        )


def build_topic_options(config: TopicConfig, kinds: Mapping[str, str]) -> TopicOptions:
    """Return the options of a route's topics. `kinds`: source → its type."""
    return TopicOptions(
        format=config.format,
        key=tuple(config.key),
        partitions=config.partitions,
        partitioner=config.partitioner,
        tombstones=config.tombstones,
        columns=tuple(config.columns),
        where=tuple((name, tuple(values)) for name, values in config.where.items()),
        masks=tuple(config.masks.items()),
        kinds=tuple(kinds.items()),
    )


@dataclass(frozen=True, slots=True)
class ResolvedRoute:
    """The target table of one source table.

    `added`: (column, value) pairs, the same for every row of the source. `topic`: set if the target is a
    topic.
    """

    schema: str
    table: str
    added: tuple[tuple[str, str], ...] = ()
    policy: SchemaChangePolicy = "lenient"
    topic: TopicOptions | None = None
    """Options of a topic; they name columns as its records do."""
    renames: tuple[tuple[str, str], ...] = ()
    """(column, its name in the target) pairs."""
    keeps_removed_rows: bool = False
    """Whether rows stay in the target that the source removed by DROP or TRUNCATE PARTITION."""

    @property
    def added_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.added)

    @property
    def where(self) -> dict[str, str] | None:
        """The condition for this source's rows in the target table; None if all rows are its own."""
        return dict(self.added) or None

    def select_renames(self, source: Table) -> dict[str, str]:
        """Return the columns of `source` to which the route gives another name: source name → target name."""
        return {name: there for name, there in self.renames if name != there and name in source.column_names}


def resolve_route(routes: Iterable[TableRoute], source: str, db: str, table: str) -> ResolvedRoute | None:
    """Return the target of `db.table` of `source` by the first matching route; None if none matches: it
    is skipped.
    """
    for route in routes:
        if is_pattern_match(route.from_, db, table):
            words = {"db": db, "table": table, "source": source}
            schema, name = fill_place(route.to, words)
            added = tuple((column, fill_template(template, words)) for column, template in route.add)
            topic = None if route.topic is None else _rename_in_options(route.topic, dict(route.renames))
            return ResolvedRoute(
                schema, name, added, route.policy, topic, route.renames, route.keeps_removed_rows
            )
    return None


def _rename_in_options(options: TopicOptions, renames: Mapping[str, str]) -> TopicOptions:
    """Return a topic's options with the target's names of columns; the configuration has the source's."""
    return replace(
        options,
        key=tuple(renames.get(name, name) for name in options.key),
        columns=tuple(renames.get(name, name) for name in options.columns),
        where=tuple((renames.get(name, name), values) for name, values in options.where),
        masks=tuple((renames.get(name, name), mask) for name, mask in options.masks),
    )


def compute_routes_fingerprint(routes: Iterable[TableRoute]) -> str:
    """Return a short digest of the routes for the layout: other routes may send a key to another lane."""
    text = "\n".join(f"{route.from_}\t{route.to}\t{sorted(route.add)}" for route in routes)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def name_columns(stored: StoredDefinition, routed: ResolvedRoute) -> StoredDefinition:
    """Return `stored` with the names that its columns, and its table, have in the target by the route as it
    is now.
    """
    renames = routed.select_renames(stored.table)
    names = follow_route(stored.names, stored.route_names, renames)
    place = (routed.schema, routed.table) if routed.topic is None else None
    return replace(stored, names=names, route_names=renames, target_place=place)


def build_desired_table(
    source: Table, routed: ResolvedRoute, names: Mapping[str, str] | None = None
) -> Table:
    """Return the target table that rowlock creates for `source`. Added columns are last, but first in
    every key.

    `names`: columns of the source that have other names in the target; None: those that the route gives.
    """
    renamed = source.with_renamed_columns(routed.select_renames(source) if names is None else names)
    first = tuple(IndexPart(column=name) for name in routed.added_names)
    return Table(
        db=routed.schema,
        name=routed.table,
        columns=renamed.columns + tuple(_build_added_column(name) for name in routed.added_names),
        key=_prepend_parts(first, renamed.key),
        unique=tuple(_prepend_parts(first, index) for index in renamed.unique),
        charset=source.charset,
        collation=source.collation,
    )


def build_stored_table(stored: StoredDefinition, routed: ResolvedRoute) -> Table:
    """Return the target table that a definition requires, with the names of its columns in the target."""
    return build_desired_table(stored.table, routed, stored.names)


def find_duplicate_columns(stored: StoredDefinition, routed: ResolvedRoute, same: NameRules) -> list[Finding]:
    """Return a finding for each column of `add:` with the name of a source column, and for each two source
    columns whose names are one to the target.
    """
    source = stored.table
    place, table = f"target table {routed.schema}.{routed.table}", format_table_text(source.db, source.name)
    both: list[Finding] = []
    own: dict[str, str] = {}
    for name in sorted(source.column_names, key=lambda name: name not in stored.names):
        there = stored.get_target_name(name)
        other = own.setdefault(same.fold_name(there), name)
        if other != name:
            finding = Finding(
                "error",
                place,
                f"the columns {other} and {name} of {table} would both be written to its column "
                f"{stored.get_target_name(other)}",
                f"give one of the two another name in the route (rename: {{columns: {{{name}: …}}}}) or at "
                "the source, or drop the target table, and copy the table",
            )
            both.append(finding)
    return both + [
        Finding(
            "error",
            place,
            f"the route adds the column {name} (`add`), but {table} already has a column of that name",
            "give the route's column another name, in the target as well, and copy the table",
        )
        for name in routed.added_names
        if same.fold_name(name) in own
    ]


def select_written_columns(expected: Table, real: Table, policy: SchemaChangePolicy) -> Table:
    """Return `expected` without the columns that the target lacks, if the policy leaves these out
    (`ignore`).
    """
    there = set(real.column_names)
    if policy != "ignore" or there.issuperset(expected.column_names):
        return expected
    return structs.replace(
        expected,
        columns=tuple(column for column in expected.columns if column.name in there),
        unique=tuple(index for index in expected.unique if there.issuperset(index.columns)),
    )


def list_unmapped_columns(expected: Table, real: Table, policy: SchemaChangePolicy) -> tuple[str, ...]:
    """Return the columns of `expected` that `select_written_columns` leaves out."""
    there = set(real.column_names)
    return tuple(name for name in expected.column_names if policy == "ignore" and name not in there)


def _build_added_column(name: str) -> Column:
    kind = ColumnType(kind=Kind.VARCHAR, length=ADDED_LENGTH, charset="utf8mb4", collation="utf8mb4_bin")
    return Column(name=name, type=kind, nullable=False)


def _prepend_parts(first: tuple[IndexPart, ...], index: UniqueIndex) -> UniqueIndex:
    return structs.replace(index, parts=first + index.parts)


def build_target_table(expected: Table, real: Table, added: tuple[str, ...] = ()) -> TargetTable:
    """Return the table as rowlock writes it: the columns of `expected`, the key and unique indexes of the
    real table.

    The target's primary key identifies a row, so it must contain all columns of the source's (otherwise
    two source rows share it). A unique index without written columns is left out. Raises
    TargetConfigError.
    """
    names = set(expected.column_names)
    missing = names - set(real.column_names)
    if missing:
        raise TargetConfigError(
            f"{_format_name(real)}: the target table lacks the columns {sorted(missing)}",
            explain_missing_columns(missing, real, added),
        )
    _check_key(expected, real)
    unique = tuple(index for index in real.unique if _is_usable_index(index, names, real))
    coming = _list_missing_indexes(expected, unique) if added else ()
    table = Table(
        db=expected.db,
        name=expected.name,
        columns=expected.columns,
        key=_use_real_collations(real.key, real),
        unique=(*(_use_real_collations(index, real) for index in unique), *coming),
        charset=expected.charset,
        collation=expected.collation,
    )
    return TargetTable(
        table=table,
        key_at=table.find_ordinals(real.key.columns),
        unique_at=tuple(table.find_ordinals(index.columns) for index in (*unique, *coming)),
        added=added,
        more=not names.issuperset(real.column_names),
        lossy=find_lossy_columns(expected, real),
        has_same_key_kinds=all(
            table.get_column(name).type.kind is real.get_column(name).type.kind for name in real.key.columns
        ),
    )


def build_topic_table(expected: Table, routed: ResolvedRoute, source: str, table_there: Table) -> TargetTable:
    """Return the table as it is written to its topic. A topic has no definition of its own, and only the
    key is unique.

    `source`: the source's name. `table_there`: the table at the source.
    """
    if routed.topic is None:
        raise ValueError(f"{expected.db}.{expected.name} is not a topic")
    exact = tuple(structs.replace(part, collation="") for part in expected.key.parts)
    table = structs.replace(expected, key=structs.replace(expected.key, parts=exact), unique=())
    return TargetTable(
        table=table,
        key_at=table.find_ordinals(table.key.columns),
        unique_at=(),
        added=routed.added_names,
        topic=TargetTopic(
            f"{expected.db}.{expected.name}",
            routed.topic,
            source,
            dict(routed.topic.kinds).get(source, ""),
            table_there.db,
            table_there.name,
            table,
            routed.added,
        ),
    )


def _list_missing_indexes(expected: Table, there: tuple[UniqueIndex, ...]) -> tuple[UniqueIndex, ...]:
    """Return the source's unique indexes that the target table lacks.

    Another source of the table may add them (docs/adr/0027-following-schema-changes.md), and no row may
    be written before the locks know them.
    """
    known = {frozenset(index.columns) for index in there}
    return tuple(index for index in expected.unique if frozenset(index.columns) not in known)


def _use_real_collations(index: UniqueIndex, real: Table) -> UniqueIndex:
    """Return `index` with the real columns' collations ("": exact); the columns' other properties are
    the source's.
    """
    parts = tuple(
        structs.replace(part, collation=part.collation or real.get_column(part.column).type.collation or "")
        for part in index.parts
    )
    return structs.replace(index, parts=parts)


def _check_key(expected: Table, real: Table) -> None:
    coarse = set(expected.key.columns) - set(real.key.columns)
    if coarse:
        raise TargetConfigError(
            f"{_format_name(real)}: the target's key {list(real.key.columns)} lacks columns "
            f"{sorted(coarse)} of the source's key: different rows of the source would share one row",
            f"make the key {list(expected.key.columns)}",
        )
    foreign = set(real.key.columns) - set(expected.column_names)
    if foreign:
        raise TargetConfigError(
            f"{_format_name(real)}: the target's key contains columns {sorted(foreign)}, for which the "
            "source has no values"
        )


def _is_usable_index(index: UniqueIndex, names: set[str], real: Table) -> bool:
    written = names.intersection(index.columns)
    if written and len(written) < len(set(index.columns)):
        other = sorted(set(index.columns) - names)
        raise TargetConfigError(
            f"{_format_name(real)}: unique index {index.name} mixes replicated columns with {other}, for "
            "which the source has no values: its values cannot be ordered across lanes",
            "drop the index or add the columns at the source",
        )
    return bool(written)


def _format_name(table: Table) -> str:
    return f"{table.db}.{table.name}"


def build_key_table(target: TargetTable) -> TargetTable:
    """Return `target` with only the columns of its key, in the key's order: a row of it is a key."""
    table, names = target.table, target.table.key.columns
    columns = tuple(map(table.get_column, names))
    return TargetTable(
        structs.replace(table, columns=columns, unique=()),
        tuple(range(len(names))),
        (),
        target.added,
        topic=target.topic,
        has_same_key_kinds=target.has_same_key_kinds,
    )


def extend_topic_key(target: TargetTable) -> TargetTable:
    """Return `target` with a longer key if it is a topic: the primary key's columns, then the routing
    key's others.

    In a topic a row may also have a record under an earlier routing key. By the primary key alone that
    record would look like the present row; by the longer key it is another row, which no longer exists.
    """
    key, topic = target.table.key, target.topic
    more = () if topic is None else tuple(name for name in topic.options.key if name not in key.columns)
    if not more:
        return target
    whole = structs.replace(key, parts=(*key.parts, *(IndexPart(column=name) for name in more)))
    table = structs.replace(target.table, key=whole)
    return replace(target, table=table, key_at=table.find_ordinals(whole.columns))


def make_topic_filter(target: TargetTable) -> Callable[[Row], bool]:
    """Return a function that decides whether the target should contain a row, by a topic's filter."""
    where = () if target.topic is None else target.topic.options.where
    return compile_row_filter(target.table, where)


def make_key_function(table: TargetTable) -> Callable[[Row], Key]:
    """Return the function target row → exact target key."""
    if len(table.key_at) == 1:
        at = table.key_at[0]
        return lambda row: (row[at],)
    return itemgetter(*table.key_at)
