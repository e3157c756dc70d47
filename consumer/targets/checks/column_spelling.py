"""Names of columns that the target takes for one, though they differ: `v` and `V` are two columns of PostgreSQL, and one of MySQL. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from schemas.table.model import Table
from schemas.table.names import NameRules


def match_other_spellings(
    source: Table, real: Table, names: Mapping[str, str], goes: Collection[str], same: NameRules
) -> dict[str, str]:
    """Return source name → the target's, for each column that the target has by its name in another spelling.

    `names`: source name → the target's, where that is known to be another. `goes`: columns of the target that get another name or are dropped now.
    """
    spelled = {same.fold_name(name): name for name in real.column_names}
    taken = {*goes, *(names.get(name, name) for name in source.column_names)}
    found: dict[str, str] = {}
    for name in source.column_names:
        there = spelled.get(same.fold_name(name), name)
        if name not in names and name not in real.column_names and there not in taken and there != name:
            found[name] = there
            taken.add(there)
    return found


def as_spelled(wanted: Table, real: Table, added: Collection[str], same: NameRules) -> Table:
    """Return `wanted` with the names that its columns have in the target; those of the columns of `add:` stay."""
    names = match_other_spellings(wanted, real, {name: name for name in added}, (), same)
    return wanted.with_renamed_columns(names) if names else wanted


def explain_missing_columns(missing: Collection[str], real: Table, added: Collection[str]) -> str:
    """Return what to do about columns that the target table lacks. A name of `add:` in another spelling is mended where it is written:
    some servers take both spellings for one column, and refuse a second one."""
    there = {name.casefold(): name for name in real.column_names}
    spelled = [
        there[name.casefold()] for name in sorted(missing) if name in added and name.casefold() in there
    ]
    others = "add them, or drop the table and let rowlock create it"
    return (
        f"write {', '.join(spelled)} under `add`, as the table spells it; otherwise {others}"
        if spelled
        else others
    )
