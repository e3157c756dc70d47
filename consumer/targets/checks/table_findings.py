"""The rules by which `rowlock check` refuses a target table; each is one function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from consumer.errors import MissingGrantError, TargetConfigError
from consumer.targets.base import UnitTarget
from consumer.targets.checks.column_fit import accepts_kind, find_value_loss, has_room, has_shifted_labels
from consumer.targets.checks.column_spelling import as_spelled, explain_missing_columns
from consumer.targets.checks.rights import MissingRight
from consumer.targets.checks.table_facts import TableFacts
from consumer.targets.session import SqlSession
from schemas.findings import Finding
from schemas.table.collations import describe_key_collations, is_not_coarser
from schemas.table.model import Table, UniqueIndex
from schemas.table.names import NameRules


@dataclass(frozen=True, slots=True)
class _TableComparison:
    """The source's table and the target's."""

    expected: Table
    """The source's table in target terms, with the target's spelling of names."""
    real: Table
    """The target's table."""
    facts: TableFacts
    added: tuple[str, ...]
    leaves_out: bool

    @property
    def place(self) -> str:
        return _name_place(self.real)

    def build_error(self, message: str, remedy: str) -> Finding:
        return Finding("error", self.place, message, remedy)

    def build_warning(self, message: str, remedy: str) -> Finding:
        return Finding("warning", self.place, message, remedy)


def check_table(
    session: UnitTarget,
    expected: Table,
    *,
    added: tuple[str, ...] = (),
    leaves_out: bool = False,
    sources: int = 1,
) -> list[Finding]:
    """Return the findings about the real target table for `expected`.

    `sources`: how many topics write it; `added`: columns of `add:`; `leaves_out`: columns that the
    target lacks are not written (`schema_changes: ignore`). A table that does not exist has no
    findings. Raises the session's errors if it cannot be read at all.
    """
    try:
        real = session.read_table(expected.db, expected.name)
    except TargetConfigError as error:
        return [_build_refusal(expected, error)]
    if real is None:
        shared = _check_shared_target(expected, added, sources, session.column_names) if sources > 1 else []
        return shared + _check_new_table(session, expected)
    there = as_spelled(expected, real, added, session.column_names)
    case = _TableComparison(
        there, real, session.read_table_facts(expected.db, expected.name), added, leaves_out
    )
    found = [finding for rule in _RULES for finding in rule(case)]
    if sources > 1:
        found += _check_shared_target(real, added, sources, session.column_names)
    return found


def _check_new_table(session: UnitTarget, table: Table) -> list[Finding]:
    """Return the findings about a table that does not exist, and that rowlock would create."""
    try:
        lacks = session.judge_new_table(table)
    except TargetConfigError as error:
        return [_build_refusal(table, error)]
    return [Finding("warning", _name_place(table), each.what, each.remedy) for each in lacks]


def _build_refusal(table: Table, error: TargetConfigError) -> Finding:
    place = _name_place(table)
    remedy = error.problem.action or "change the target table as the message describes"
    return Finding("error", place, error.problem.what.removeprefix(f"{place}: "), remedy)


def _name_place(table: Table) -> str:
    return f"target table {table.db}.{table.name}"


def report_missing_rights(missing: list[MissingRight], place: str) -> list[Finding]:
    """Return a finding for each right that the user of a target lacks; the remedy is the statement that
    gives it.
    """
    return [Finding("error", place, each.message, each.statement) for each in missing]


def check_session(session: SqlSession, place: str) -> list[Finding]:
    """Return the findings about what the user of a target may do beyond its tables, the durability of
    commits, and the server's version.
    """
    try:
        session.probe_blockers()
    except MissingGrantError as error:
        return [Finding("error", place, error.seen, error.statement)]
    except TargetConfigError as error:
        return [
            Finding(
                "error", place, error.problem.what, error.problem.action or "do what the message describes"
            )
        ]
    found = []
    if (risk := session.probe_durability()) is not None:
        found.append(Finding(risk.level, place, risk.message, risk.remedy))
    if (untested := session.explain_untested_version()) is not None:
        found.append(Finding("warning", place, untested.what, untested.remedy))
    return found


def _check_shared_target(
    table: Table, added: tuple[str, ...], sources: int, same: NameRules
) -> list[Finding]:
    """Return the findings about a table of several sources: each unique index needs an added column.

    Locks do not extend across topics, so only such a column keeps the rows of the sources apart.
    """
    return [
        Finding(
            "error",
            _name_place(table),
            (
                f"{sources} topics write the table, and unique index {index.name} "
                f"({', '.join(index.columns)}) contains no column that distinguishes the sources (`add`): "
                "rows of different sources would conflict"
            ),
            'add a column to the route (add: {branch: "{source}"}) and put it into '
            "every unique index of the table",
        )
        for index in (table.key, *table.unique)
        if {*map(same.fold_name, added)}.isdisjoint(map(same.fold_name, index.columns))
    ]


def _check_columns(case: _TableComparison) -> Iterator[Finding]:
    real = set(case.real.column_names)
    missing = [name for name in case.expected.column_names if name not in real]
    if missing and not case.leaves_out:
        yield case.build_error(
            f"lacks the columns {', '.join(missing)}", explain_missing_columns(missing, case.real, case.added)
        )
    written = set(case.expected.column_names)
    required = [name for name in case.facts.required if name not in written]
    if required:
        yield case.build_error(
            f"its columns {', '.join(required)} are NOT NULL without a default, and the source has no "
            "values for them",
            "give them a default, or allow NULL",
        )


def _check_types(case: _TableComparison) -> Iterator[Finding]:
    real = {column.name: column for column in case.real.columns}
    for column in case.expected.columns:
        there = real.get(column.name)
        if there is None:
            continue
        if there.generated:
            yield case.build_error(
                f"column {column.name} is a generated column in the target", "make it an ordinary column"
            )
        elif has_shifted_labels(column.type, there.type):
            yield case.build_error(
                f"column {column.name} has other labels in the target than at the source, or in "
                "another order; one label is empty, so rowlock writes the labels' numbers, which "
                "would mean other labels in the target",
                "give it the source's labels in the source's order",
            )
        elif not accepts_kind(column.type, there.type):
            yield case.build_error(
                f"column {column.name} is {there.type.kind} in the target and "
                f"{column.type.kind} at the source",
                "change its type (see `rowlock docs types`)",
            )
        elif not has_room(column.type, there.type) or find_value_loss(column.type, there.type) is not None:
            yield case.build_warning(
                (
                    f"column {column.name} cannot store every value of the source's type "
                    "unchanged: rows with other values are quarantined (`schema_changes: "
                    "ignore`: the first such row stops the table)"
                ),
                "make the column as wide as the source's (see `rowlock docs types`)",
            )
        elif column.nullable and not there.nullable and column.name not in case.expected.key.columns:
            yield case.build_warning(
                f"column {column.name} is NOT NULL there and may be NULL at the source: such rows are "
                "quarantined (`schema_changes: ignore`: the first one stops the table)",
                "allow NULL in the target",
            )


def _check_key(case: _TableComparison) -> Iterator[Finding]:
    """Check that the target's key contains the whole source key, and compares it as finely.

    Two source rows must never share a target row.
    """
    expected, real = case.expected.key, case.real.key
    missing = [name for name in expected.columns if name not in real.columns]
    if missing:
        yield case.build_error(
            f"its key ({', '.join(real.columns)}) lacks {', '.join(missing)} of the source's key: rows that "
            "differ at the source would be one row",
            f"make the key ({', '.join(expected.columns)})",
        )
    foreign = [name for name in real.columns if name not in case.expected.column_names]
    if foreign:
        yield case.build_error(
            f"its key contains columns {', '.join(foreign)}, for which the source has no values",
            f"make the key ({', '.join(expected.columns)})",
        )
    yield from _check_index_prefixes(case, expected, real)


def _check_unique_indexes(case: _TableComparison) -> Iterator[Finding]:
    """Check that the source guarantees each unique index: it must contain all columns of one of the
    source's.
    """
    for real in case.real.unique:
        if not set(real.columns).intersection(case.expected.column_names):
            continue
        implied = [
            index
            for index in (case.expected.key, *case.expected.unique)
            if set(index.columns) <= set(real.columns)
        ]
        if not implied:
            yield case.build_error(
                f"unique index {real.name} ({', '.join(real.columns)}) is stricter than the source's "
                "indexes: of two rows that the source allows, the target could have only one",
                "drop the index, or make it an ordinary one",
            )
        elif not real.nulls_distinct and all(index.nulls_distinct for index in implied):
            nullable = [name for name in real.columns if case.expected.get_column(name).nullable]
            if nullable:
                yield case.build_error(
                    f"unique index {real.name} treats NULLs as equal (NULLS NOT "
                    "DISTINCT), the source does not",
                    "create the index without NULLS NOT DISTINCT",
                )
        else:
            yield from _check_index_prefixes(case, implied[0], real)


def _check_index_prefixes(
    case: _TableComparison, expected: UniqueIndex, real: UniqueIndex
) -> Iterator[Finding]:
    prefixes = {part.column: part.prefix for part in expected.parts}
    for part in real.parts:
        if part.column not in case.expected.column_names or part.column in case.added:
            continue
        prefix = prefixes.get(part.column)
        if part.prefix is not None and (prefix is None or part.prefix < prefix):
            yield case.build_error(
                f"unique index {real.name} compares only {part.prefix} characters of {part.column}",
                "index the whole column",
            )
        source = case.expected.get_column(part.column).type.collation
        collation = part.collation or case.real.get_column(part.column).type.collation
        if not is_not_coarser(source, collation):
            yield case.build_error(
                f"unique index {real.name} compares {part.column} by {collation}, the source by "
                f"{source or 'bytes'}: values that differ at the source may be equal there, and only "
                "one of their rows would stay",
                _build_finer_remedy(case, source),
            )


def _build_finer_remedy(case: _TableComparison, source: str | None) -> str:
    if source is None:
        return "give the column a binary type"
    return case.facts.finer.replace("{names}", describe_key_collations(source))


def _check_surroundings(case: _TableComparison) -> Iterator[Finding]:
    facts = case.facts
    if facts.foreign_keys:
        yield case.build_error(
            f"has foreign keys: {', '.join(facts.foreign_keys)}; rowlock writes tables independently of "
            "each other, and a cascade would change rows that the source did not change",
            "drop them in the target: the source already guarantees them",
        )
    if facts.triggers:
        yield case.build_error(
            f"has triggers: {', '.join(facts.triggers)}; they would run a second time for changes "
            "that the source has already made",
            "drop them in the target",
        )
    if facts.unordered:
        yield case.build_error(
            (
                "has constraints that rowlock cannot take into account when it orders writes: "
                f"{', '.join(facts.unordered)}"
            ),
            "make them ordinary unique indexes over columns, or drop them",
        )


def _yield_remarks(case: _TableComparison) -> Iterator[Finding]:
    """Yield the remarks about a table that only this dialect makes."""
    updated = set(case.expected.column_names) - set(
        case.real.key.columns
    )  # those of the key are only inserted
    for each in case.facts.remarks:
        concerned = sorted(updated.intersection(each.columns))
        if not each.columns:
            yield Finding(each.level, case.place, each.message, each.remedy)
        elif concerned:
            message = each.message.replace("{columns}", ", ".join(concerned))
            yield Finding(each.level, case.place, message, each.remedy.replace("{column}", concerned[0]))


def _check_unseen_facts(case: _TableComparison) -> Iterator[Finding]:
    for what, statement in case.facts.unseen:
        yield case.build_error(
            f"the target's user cannot see {what}, so rowlock does not know whether the table has any",
            statement,
        )


_RULES: tuple[Callable[[_TableComparison], Iterator[Finding]], ...] = (
    _check_columns, _check_types, _check_key, _check_unique_indexes, _check_surroundings, _yield_remarks,
    _check_unseen_facts,
)  # fmt: skip
