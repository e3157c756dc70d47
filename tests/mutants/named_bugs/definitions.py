"""Bugs of definitions of tables: changes that the target follows, and what stays true across them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

BUGS = [
    Mutant(
        bug="a unique index keeps the old name of a renamed column",
        file="schemas/table/model.py",
        old="column=names.get(part.column, part.column)",
        new="column=part.column",
        tests=("tests/unit/test_evolution.py",),
    ),
    Mutant(
        bug="a later definition forgets that a column was renamed before",
        file="consumer/tables/stored.py",
        old="    return before.columns_stable_since\n",
        new="    return None\n",
        tests=("tests/unit/test_held_before_changes.py",),
    ),
    Mutant(
        bug="a new definition forgets the snapshot that is being applied",
        file="consumer/attempt/evolution/in_target.py",
        old="stored=replace(planned.stored, columns_stable_since=since))",
        new="stored=replace(planned.stored, columns_stable_since=since, snapshot=None))",
        tests=("tests/unit/test_debezium_snapshots.py",),
    ),
    Mutant(
        bug="the session of a dead worker goes on altering the target table",
        file="consumer/attempt/evolution/machine.py",
        old="            yield from retry_transient(lambda: ask_driver(EndConnection(mark.connection)))",
        new="            pass",
        tests=("tests/unit/test_evolving.py",),
    ),
    Mutant(
        bug="a refused ALTER is taken up again after each restart",
        file="consumer/attempt/evolution/machine.py",
        old="            yield from self._unmark_change(change)\n            raise",
        new="            raise",
        tests=("tests/unit/test_evolving.py",),
    ),
    Mutant(
        bug="a definition becomes active for a shared table that another unit has altered",
        file="consumer/attempt/evolution/next_definition.py",
        old="RequireTableUnchanged(stored.table, active.real) if first else RequireRowsPresent()",
        new="RequireRowsPresent()",
        tests=("tests/unit/test_next_definition.py",),
    ),
    Mutant(
        bug="a target table read for another definition counts as the present one",
        file="consumer/attempt/spec.py",
        old="known.of in (None, stored.encode())",
        new="True",
        tests=("tests/unit/test_evolving.py",),
    ),
    Mutant(
        bug="a new definition forgets which columns the target lacks",
        file="consumer/tables/evolution/plans.py",
        old="tuple(sorted(left)), lacks)\n",
        new="tuple(sorted(left)))\n",
        tests=("tests/unit/test_evolution.py",),
    ),
    Mutant(
        bug="numbers of labels are taken for other labels of the target",
        file="consumer/targets/checks/column_fit.py",
        old="return source.members[:shared] != real.members[:shared]",
        new="return False",
        tests=("tests/unit/test_label_numbers.py",),
    ),
]
