"""Names of columns that differ but mean one column to the target: `v` and `V` are two columns in
PostgreSQL, and one in MySQL. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from schemas.table.model import Table
from schemas.table.names import NameRules


def match_other_spellings(
    source: Table, real: Table, names: Mapping[str, str], released: Collection[str], same: NameRules
) -> dict[str, str]:
    """Return source name → the target's, for each column that the target has in another spelling.

    `names`: source name → the target's, where that is known to differ. `released`: columns of the target
    that are being renamed or dropped.
    """
    spelled = {same.fold_name(name): name for name in real.column_names}
    taken = {*released, *(names.get(name, name) for name in source.column_names)}
    found: dict[str, str] = {}
    for name in source.column_names:
        there = spelled.get(same.fold_name(name), name)
        if name not in names and name not in real.column_names and there not in taken and there != name:
            found[name] = there
            taken.add(there)
    return found


def as_spelled(expected: Table, real: Table, added: Collection[str], same: NameRules) -> Table:
    """Return `expected` with the target's names of its columns; columns of `add:` keep theirs."""
    names = match_other_spellings(expected, real, {name: name for name in added}, (), same)
    return expected.with_renamed_columns(names) if names else expected


def explain_missing_columns(missing: Collection[str], real: Table, added: Collection[str]) -> str:
    """Return what to do about columns that the target table lacks.

    A name of `add:` in another spelling is corrected in the configuration: some servers consider both
    spellings one column, and refuse a second one.
    """
    there = {name.casefold(): name for name in real.column_names}
    spelled = [
        there[name.casefold()] for name in sorted(missing) if name in added and name.casefold() in there
    ]
    others = "add them, and if the table has rows, then copy it: only a copy fills the columns"
    return (
        f"write {', '.join(spelled)} under `add`, as the table spells it; otherwise {others}"
        if spelled
        else others
    )
