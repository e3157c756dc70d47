"""Tables that are created, dropped or renamed: rows of docs/explanation/what-stops-what.md."""

from __future__ import annotations

from producer.definitions.proof import DocumentedEffect

#: tests/integration/test_table_lives.py runs each of them.
LIVES: tuple[DocumentedEffect, ...] = (
    DocumentedEffect("`DROP TABLE t`, `DROP DATABASE`", "the table",
     "cause `dropped`; what its rows become at a target is `on_drop`"),
    DocumentedEffect("`DROP TABLE t`; `CREATE TABLE t …`, also LIKE and SELECT", "the table",
     "cause `dropped`; capture asks for a copy when it is there again, within the limits of `repair`"),
    DocumentedEffect("`CREATE TABLE n … SELECT`, `CREATE TABLE n LIKE t`", "nothing",
     "`n` begins with its definition, its rows follow as events"),
    DocumentedEffect("`RENAME TABLE t TO n`, both in `tables:`", "the table",
     "`t` stops as `dropped`; `n` is a new table, with a snapshot (with `snapshot: never` it "
     "stops: cause `rows-replaced`)"),
    DocumentedEffect("RENAME TABLE t TO x", "the table", "`t` stops as `dropped`"),
    DocumentedEffect("`RENAME TABLE x TO n`", "nothing",
     "`n` is a new table, with a snapshot (with `snapshot: never` it stops: cause `rows-replaced`)"),
    DocumentedEffect("`RENAME TABLE t TO x`; `RENAME TABLE y TO t`", "the table",
     "`t` stops as `dropped`, and a copy is asked for when `y` takes the name"),
    DocumentedEffect("RENAME TABLE t TO old, x TO t", "the table",
     "cause `rows-replaced`; the copy brings the rows of `x`"),
    DocumentedEffect("RENAME TABLE t TO tmp, u TO t, tmp TO u", "the table",
     "`t` and `u` both stop with the cause `rows-replaced`"),
    DocumentedEffect("`ALTER TABLE t CONVERT PARTITION p TO TABLE n` (MariaDB)", "nothing",
     "`t` goes on with a [debt](../how-to/partitions.md); `n` is a new table, with a snapshot (with "
     "`snapshot: never` it stops: cause `rows-replaced`)"),
    DocumentedEffect("`DROP TABLE u`; `ALTER TABLE t CONVERT PARTITION p TO TABLE u` (MariaDB)", "the table",
     "`u` stops as `dropped`, and a copy is asked for when it is there again"),
    DocumentedEffect("`ALTER TABLE t CONVERT TABLE u TO PARTITION p …` (MariaDB)", "the table",
     "`t` stops with the cause `rows-replaced`, and `u` as `dropped`"),
    DocumentedEffect("a swap of gh-ost or pt-online-schema-change", "by policy",
     "a new definition event, as by an ALTER TABLE"),
)  # fmt: skip
