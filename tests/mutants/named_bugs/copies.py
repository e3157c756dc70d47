"""Bugs of copies and snapshots as the consumer applies them: which rows are written, kept and deleted."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

BUGS = [
    Mutant(
        bug="deleted rows stay in a range whose bound the target refused",
        file="consumer/attempt/copies/sweep.py",
        old="        return (yield from self.sweep_table(begins, at, bound))",
        new="        return 0",
        tests=("tests/unit/test_apply_copies.py",),
    ),
    Mutant(
        bug="the end of a copied range deletes rows behind the range",
        file="consumer/attempt/copies/sweep.py",
        old="return (yield from self._compare_target_keys(keys, None, upto))",
        new="return (yield from self._compare_target_keys(keys, None, None))",
        tests=("tests/unit/test_apply_copies.py",),
    ),
    Mutant(
        bug="rows of an incremental snapshot count as a complete one",
        file="schemas/wire/debezium_snapshot.py",
        old='    "true": SnapshotPlace.INSIDE,',
        new='    "true": SnapshotPlace.INSIDE, "incremental": SnapshotPlace.INSIDE,',
        tests=("tests/unit/test_debezium_snapshots.py",),
    ),
    Mutant(
        bug="a takeover does not know that a snapshot is being applied",
        file="consumer/attempt/copies/snapshots.py",
        old="    stored = replace(before, snapshot=(found.first, found.last))",
        new="    stored = before",
        tests=("tests/unit/test_debezium_snapshots.py",),
    ),
    Mutant(
        bug="a finished snapshot is finished again after each restart",
        file="consumer/attempt/copies/snapshots.py",
        old="replace(active.stored, snapshot=None).encode()",
        new="active.stored.encode()",
        tests=("tests/unit/test_debezium_snapshots.py",),
    ),
    Mutant(
        bug="a quarantined row is released without asking the source for it",
        file="consumer/attempt/copies/snapshots.py",
        old=".vouch_for_keys(\n            chain(doubted, [[key for key, _ in gone]])\n        )",
        new=".vouch_for_keys(doubted)",
        tests=("tests/unit/test_partial_snapshots.py",),
    ),
    Mutant(
        bug="a row is deleted without asking the source for it",
        file="consumer/attempt/copies/sweep.py",
        old="yield from self._vouch(keys.yield_doubted())",
        new="pass",
        tests=("tests/unit/test_partial_snapshots.py",),
    ),
    Mutant(
        bug="a copy marks displaced rows as replaced that came after it began",
        file="consumer/attempt/copies/copies.py",
        old='SupersedeDisplaced(f"{target.schema}.{target.name}", begins, why)',
        new='SupersedeDisplaced(f"{target.schema}.{target.name}", mark[0], why)',
        tests=("tests/unit/test_apply_copies.py",),
    ),
]
